-- What a caller is asked: answers given before the call was accepted, and what may be asked later.
-- Locks: ACCESS EXCLUSIVE on task for a moment; no row is read or written.

-- A JSON object, key -> answer; null where nothing was asked.
ALTER TABLE task ADD COLUMN inputs text;
-- What the caller's client declared it can be asked: 1 forms, 2 URLs, 4 sampling, 8 roots.
ALTER TABLE task ADD COLUMN asks integer NOT NULL DEFAULT 0;
