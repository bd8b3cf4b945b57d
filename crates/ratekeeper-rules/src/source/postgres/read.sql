-- One statement, which sees one moment: no rule in it is older or newer than the version.
SELECT rule_set.version, rule_set.settings::text, rules.name, rules.definition::text
FROM ratekeeper_rule_set AS rule_set LEFT JOIN ratekeeper_rules AS rules ON rules.enabled
ORDER BY rules.position, rules.name COLLATE "C"
