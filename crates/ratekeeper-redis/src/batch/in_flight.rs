//! What is sent to Redis in one go, and what becomes of it.

mod reply;

use std::time::Duration;

use ratekeeper_core::{StoreError, Timestamp};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use smallvec::smallvec;
use tokio::time::Instant;

pub(crate) use self::reply::{Failure, Fate, Received};
use crate::batch::call::{Call, Few};
use crate::batch::server_time::ServerTime;
use crate::batch::settlement;
use crate::config::Config;
use crate::denial_cache::{DenialCache, Passed};
use crate::request::{Ask, Charges, Intent, Kind};
use crate::script::{self, CHARGE};

/// Longer than anything takes.
const A_DAY: Duration = Duration::from_secs(86_400);

/// Requests that are under way together.
#[derive(Debug)]
pub(crate) struct InFlight {
    commands: Vec<Command>,
    pub(crate) sent: Instant,
    /// The same, by the clock of [`DenialCache`].
    sent_at: Passed,
    /// When the first of its callers stops waiting.
    deadline: Instant,
    /// Whether it has settlements, or nothing may be settled until it is back.
    pub(crate) settles: bool,
    /// No answer has come in time.
    pub(crate) overdue: bool,
    /// Whether others were left waiting.
    pub(crate) left_others: bool,
}

/// One command, and the questions that its answer is for.
#[derive(Debug)]
struct Command {
    kind: CommandKind,
    asks: Vec<Option<Ask>>,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "most are scripts")]
enum CommandKind {
    /// Says that the next command is for a slot that is moving.
    Asking,
    Script(Call),
    Settle,
    Reset,
    /// Asks for the time, to check whether the server is there.
    Time,
}

/// The commands of a batch, ready to be sent.
#[derive(Debug)]
pub(crate) struct Commands {
    all: Vec<Cmd>,
    /// Whether the server may not know the scripts. Then the first command for each has its body.
    lacks_charge: bool,
    lacks_settle: bool,
    /// Whether each request has a call of its own.
    apart: bool,
}

/// How a batch is sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mode {
    /// Whether the server lacks the scripts: the first call of each has its body.
    pub(crate) with_bodies: bool,
    /// Whether each request has a call of its own.
    pub(crate) apart: bool,
}

impl Commands {
    const fn new(Mode { with_bodies, apart }: Mode) -> Self {
        Self { all: Vec::new(), lacks_charge: with_bodies, lacks_settle: with_bodies, apart }
    }

    pub(crate) async fn send(self, connection: &mut MultiplexedConnection) -> Result<Vec<Value>, RedisError> {
        match <[Cmd; 1]>::try_from(self.all) {
            Ok([only]) => Ok(vec![connection.send_packed_command(&only).await?]),
            Err(several) => {
                let mut pipeline = redis::Pipeline::new();
                let count = several.len();
                several.into_iter().for_each(|command| {
                    pipeline.add_command(command);
                });
                connection.send_packed_commands(&pipeline, 0, count).await
            }
        }
    }
}

impl InFlight {
    /// Settlements come first, so that a caller that gives back and asks again sees the refund.
    pub(crate) fn new(
        settlements: Vec<Ask>,
        asks: Vec<Ask>,
        time: &ServerTime,
        config: &Config,
        mode: Mode,
        denied: &DenialCache,
    ) -> (Self, Commands) {
        let sent = Instant::now();
        let mut flight = Self {
            commands: Vec::new(),
            sent,
            sent_at: denied.passed(),
            deadline: sent + A_DAY,
            settles: !settlements.is_empty(),
            overdue: false,
            left_others: false,
        };
        let mut commands = Commands::new(mode);
        // A settlement that was kept has a deadline that is long past, and nobody waits for it. Its deadline
        // does not concern the others.
        let awaited = settlements.iter().filter(|ask| !ask.is_unheard());
        let first = awaited.chain(&asks).map(|ask| ask.deadline).min();
        let first_asked = asks.iter().map(|ask| ask.deadline).min();
        flight.deadline = first.unwrap_or(flight.deadline);
        let deadline = first_asked.filter(|_| config.clock.is_none()).and_then(|deadline| time.at(deadline));
        flight.settle(&mut commands, settlements, config);
        let (mut charges, mut peeks) = (Vec::with_capacity(asks.len()), Vec::new());
        for ask in asks {
            match &ask.kind {
                Kind::Charge { intent, .. } if goes_alone(&ask, mode.apart, config) => {
                    let peek = *intent == Intent::Peek;
                    if ask.asking {
                        flight.add_asking(&mut commands);
                    }
                    flight.add_scripts(&mut commands, vec![ask], peek, deadline, config);
                }
                Kind::Charge { intent: Intent::Peek, .. } => peeks.push(ask),
                Kind::Charge { .. } => charges.push(ask),
                Kind::Settle { .. } => flight.settle(&mut commands, vec![ask], config),
                Kind::Reset { counter, .. } => {
                    if ask.asking {
                        flight.add_asking(&mut commands);
                    }
                    let mut command = redis::cmd("DEL");
                    command.arg(config.names.name(counter).as_slice());
                    commands.all.push(command);
                    flight.commands.push(Command { kind: CommandKind::Reset, asks: vec![Some(ask)] });
                }
            }
        }
        for (asks, peek) in [(charges, false), (peeks, true)] {
            for asks in by_slot(asks, config.cluster) {
                flight.add_scripts(&mut commands, asks, peek, deadline, config);
            }
        }
        (flight, commands)
    }

    /// Only asks whether the server is there. Until it has answered, nothing is settled.
    pub(crate) fn whether_there(denied: &DenialCache) -> (Self, Commands) {
        let sent = Instant::now();
        let flight = Self {
            commands: vec![Command { kind: CommandKind::Time, asks: Vec::new() }],
            sent,
            sent_at: denied.passed(),
            deadline: sent + A_DAY,
            settles: true,
            overdue: false,
            left_others: false,
        };
        let mut commands = Commands::new(Mode::default());
        commands.all.push(redis::cmd("TIME"));
        (flight, commands)
    }

    fn add_asking(&mut self, commands: &mut Commands) {
        commands.all.push(redis::cmd("ASKING"));
        self.commands.push(Command { kind: CommandKind::Asking, asks: Vec::new() });
    }

    /// Adds settlements. Those of one slot share a call, up to the batch size.
    fn settle(&mut self, commands: &mut Commands, settlements: Vec<Ask>, config: &Config) {
        let (alone, together): (Vec<_>, Vec<_>) =
            settlements.into_iter().partition(|ask| goes_alone(ask, commands.apart, config));
        for mut asks in alone.into_iter().map(|ask| vec![ask]).chain(by_slot(together, config.cluster)) {
            while !asks.is_empty() {
                let rest = asks.split_off(asks.len().min(config.batch));
                let own = std::mem::replace(&mut asks, rest);
                if own.iter().any(|ask| ask.asking) {
                    self.add_asking(commands);
                }
                let settlements = own.iter().filter_map(Ask::settlement);
                let with_body = std::mem::take(&mut commands.lacks_settle);
                let command = settlement::command(settlements, &config.names, config.now(), with_body);
                commands.all.push(command);
                let asks = own.into_iter().map(Some).collect();
                self.commands.push(Command { kind: CommandKind::Settle, asks });
            }
        }
    }

    fn add_scripts(
        &mut self,
        commands: &mut Commands,
        mut asks: Vec<Ask>,
        peek: bool,
        deadline: Option<Timestamp>,
        config: &Config,
    ) {
        let calls = Call::gather(&charges_of(&asks), config.batch, peek);
        for (count, call) in calls {
            let rest = asks.split_off(count);
            let own = std::mem::replace(&mut asks, rest);
            let charges = charges_of(&own);
            let names = call.counted(&charges).map(|counter| config.names.name(counter));
            let with_body = std::mem::take(&mut commands.lacks_charge);
            let question = call.pack(deadline, config.now());
            commands.all.push(script::command(&CHARGE, with_body, names, &question));
            drop(charges);
            let asks = own.into_iter().map(Some).collect();
            self.commands.push(Command { kind: CommandKind::Script(call), asks });
        }
    }

    /// How many questions and settlements it has.
    pub(crate) fn len(&self) -> usize {
        self.commands.iter().map(|command| command.asks.len()).sum()
    }

    pub(crate) fn fail(self, error: &StoreError) {
        self.commands.into_iter().flat_map(|command| command.asks).flatten().for_each(|ask| ask.fail(error));
    }

    /// Lets go of requests whose time is up.
    pub(crate) fn expire(&mut self, now: Instant, error: &StoreError) {
        if now < self.deadline {
            return;
        }
        let asks = self.commands.iter_mut().flat_map(|command| &mut command.asks);
        let mut next = None;
        for slot in asks {
            match slot {
                Some(ask) if ask.deadline > now => {
                    next = Some(next.map_or(ask.deadline, |next: Instant| next.min(ask.deadline)));
                }
                Some(ask) => ask.expire(error),
                None => {}
            }
        }
        // Nobody waits any more: from here on, the alarm is only for the answer.
        self.deadline = next.unwrap_or(now + A_DAY);
    }

    /// When to check on it next.
    pub(crate) fn next_alarm(&self, config: &Config) -> Instant {
        let patience = if self.overdue { config.silence() } else { config.timeout };
        self.deadline.min(self.sent + patience)
    }
}

fn charges_of(asks: &[Ask]) -> Few<&Charges> {
    asks.iter().filter_map(Ask::charges).collect()
}

/// Whether a node says that a slot belongs to another node, or is about to, or to none. That the cluster is
/// down is different: every node says so about all slots, and so the node has failed until it no longer does.
pub(crate) fn is_elsewhere(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask | ServerErrorKind::TryAgain) => true,
        ErrorKind::Server(ServerErrorKind::ClusterDown) => {
            error.detail().is_some_and(|detail| detail.contains("slot not served"))
        }
        _ => false,
    }
}

/// Whether it must not share a call: its slot may be moving, with some counters on one node and some on the
/// other. A node does none of a call that is about both, however often it is asked.
const fn goes_alone(ask: &Ask, apart: bool, config: &Config) -> bool {
    apart || (config.cluster && (ask.asking || ask.attempts > 0 || ask.redirects > 0))
}

/// Groups questions that may be asked in one call.
fn by_slot(asks: Vec<Ask>, cluster: bool) -> Few<Vec<Ask>> {
    if asks.is_empty() {
        return Few::new();
    }
    if !cluster {
        return smallvec![asks];
    }
    let mut slots: std::collections::BTreeMap<u16, Vec<Ask>> = std::collections::BTreeMap::new();
    for ask in asks {
        slots.entry(ask.slot()).or_default().push(ask);
    }
    slots.into_values().collect()
}
