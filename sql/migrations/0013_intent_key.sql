-- The key of what may have left, for the person who has to look for it downstream.
-- Locks: ACCESS EXCLUSIVE on intent and its partitions for the length of this transaction, which reads no
-- row. Binaries of version 9 and later go on: they write none.
ALTER TABLE intent ADD COLUMN derived_key text;
