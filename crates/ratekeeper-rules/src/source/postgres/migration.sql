-- The tables of Ratekeeper's rules. Can be run again at any time, and by several sessions at once.
--
--   psql --single-transaction --file migration.sql
--
-- Each row of ratekeeper_rules is a rule:
--
--   INSERT INTO ratekeeper_rules (name, definition)
--   VALUES ('login', '{"match": "POST /login", "quota": "5/minute sliding-log"}');
--
-- Changing rules needs, besides rights on ratekeeper_rules, UPDATE on ratekeeper_rule_set. Reading them needs
-- SELECT on both.

-- Concurrent runs wait for each other.
SELECT pg_advisory_xact_lock(8317992);

CREATE TABLE IF NOT EXISTS ratekeeper_rules (
    name text PRIMARY KEY CHECK (name <> ''),
    -- Everything in a rule of a file except its name.
    definition jsonb NOT NULL
        CHECK (jsonb_typeof(definition) = 'object' AND NOT jsonb_exists(definition, 'name')),
    -- Rules are in this order; those with the same position are ordered by name.
    position integer NOT NULL DEFAULT 0,
    -- A rule that is not enabled is ignored.
    enabled boolean NOT NULL DEFAULT true,
    updated_at timestamptz NOT NULL DEFAULT now()
);

-- One row about all rules together.
CREATE TABLE IF NOT EXISTS ratekeeper_rule_set (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    -- Incremented by each change. A transaction that changes rules locks this row until it is done, so that
    -- the numbers are in the order in which changes become visible.
    version bigint NOT NULL DEFAULT 0 CHECK (version >= 0),
    -- What a file contains besides its rules: trusted-proxies, layer and limiter.
    settings jsonb NOT NULL DEFAULT '{}'
        CHECK (jsonb_typeof(settings) = 'object' AND NOT jsonb_exists(settings, 'rules')),
    updated_at timestamptz NOT NULL DEFAULT now()
);

INSERT INTO ratekeeper_rule_set DEFAULT VALUES ON CONFLICT DO NOTHING;

CREATE OR REPLACE FUNCTION ratekeeper_rule_touched() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.updated_at := now();
    RETURN NEW;
END
$$;

-- Qualified by its schema, as the session that changes a rule may have another search_path.
CREATE OR REPLACE FUNCTION ratekeeper_rules_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('UPDATE %I.ratekeeper_rule_set SET version = version + 1', TG_TABLE_SCHEMA);
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION ratekeeper_rule_set_changing() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.settings IS DISTINCT FROM OLD.settings AND NEW.version = OLD.version THEN
        NEW.version := OLD.version + 1;
    END IF;
    NEW.updated_at := now();
    RETURN NEW;
END
$$;

-- Sent when the change is committed, and not at all if it is rolled back.
CREATE OR REPLACE FUNCTION ratekeeper_rule_set_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('ratekeeper_rules', NEW.version::text);
    RETURN NULL;
END
$$;

DROP TRIGGER IF EXISTS ratekeeper_rule_touched ON ratekeeper_rules;
CREATE TRIGGER ratekeeper_rule_touched BEFORE UPDATE ON ratekeeper_rules
    FOR EACH ROW EXECUTE FUNCTION ratekeeper_rule_touched();

DROP TRIGGER IF EXISTS ratekeeper_rules_changed ON ratekeeper_rules;
CREATE TRIGGER ratekeeper_rules_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON ratekeeper_rules
    FOR EACH STATEMENT EXECUTE FUNCTION ratekeeper_rules_changed();

DROP TRIGGER IF EXISTS ratekeeper_rule_set_changing ON ratekeeper_rule_set;
CREATE TRIGGER ratekeeper_rule_set_changing BEFORE UPDATE ON ratekeeper_rule_set
    FOR EACH ROW EXECUTE FUNCTION ratekeeper_rule_set_changing();

DROP TRIGGER IF EXISTS ratekeeper_rule_set_changed ON ratekeeper_rule_set;
CREATE TRIGGER ratekeeper_rule_set_changed AFTER UPDATE ON ratekeeper_rule_set
    FOR EACH ROW EXECUTE FUNCTION ratekeeper_rule_set_changed();
