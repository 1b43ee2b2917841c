-- What the third version added: a key and other replica identities for replication, and the table of the home.
ALTER TABLE :"schema".:"pauseTable" ADD COLUMN id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY;
ALTER TABLE :"schema".:"ledger1" REPLICA IDENTITY FULL;
ALTER TABLE :"schema".:"ledger2" REPLICA IDENTITY FULL;

CREATE TABLE :"schema".:"homeTable" (
  id uuid PRIMARY KEY,
  system bigint,
  database oid NOT NULL,
  "table" oid NOT NULL,
  version integer NOT NULL,
  cluster text NOT NULL,
  label text,
  since timestamptz NOT NULL DEFAULT statement_timestamp()
);
