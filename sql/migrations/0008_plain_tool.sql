-- Tools without effect ID are answered by the API itself: they have no phases.
-- Locks: ACCESS EXCLUSIVE on tool for a moment; reads its few rows.

ALTER TABLE tool DROP CONSTRAINT tool_phases_check;
ALTER TABLE tool ADD CONSTRAINT tool_phases_check CHECK (phases >= 0);
