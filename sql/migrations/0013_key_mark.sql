-- One secret a key version: what every process that holds a keys file must agree on (V5).
-- Locks: none that matter. Binaries of earlier versions go on; nobody compares their keys files.

-- What tells one secret from another and gives nothing of it away: keyring_mark of runtime/key.h. The
-- first process that knew the version left it; a row goes only by hand (deploy/OPERATING.md, Files).
CREATE TABLE key_mark (
    version  integer PRIMARY KEY CHECK (version > 0),
    mark     bytea NOT NULL CHECK (octet_length(mark) = 32)
);
