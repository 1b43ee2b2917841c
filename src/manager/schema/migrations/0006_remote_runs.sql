-- Where remote tasks run, so that their own server can be asked when their session here is gone.

-- A line with a place is no proof: it is entered before a remote task begins there. Empty: nobody
-- has to ask any more.
ALTER TABLE :"schema".:"ledger1" ADD COLUMN IF NOT EXISTS place text;
ALTER TABLE :"schema".:"ledger2" ADD COLUMN IF NOT EXISTS place text;

COMMENT ON TABLE :"schema".:"ledger1" IS 'For pg-task''s own use: runs whose effect was committed, and where remote ones run';
COMMENT ON TABLE :"schema".:"ledger2" IS 'For pg-task''s own use: runs whose effect was committed, and where remote ones run';
