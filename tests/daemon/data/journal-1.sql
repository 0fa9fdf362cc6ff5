BEGIN TRANSACTION;
CREATE TABLE attempts (   -- starts of jobs that are over
  job INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  last INTEGER NOT NULL,       -- 1: with it the job ended; 0: another one followed, or is to follow
  device TEXT,
  started_us INTEGER,
  ended_us INTEGER NOT NULL,
  exit_code INTEGER,
  signal INTEGER,
  out_of_memory INTEGER NOT NULL,  -- 1: it ended for want of device memory; 2: before it had any
  outgrown_bytes INTEGER NOT NULL,  -- bytes of its device that it had to itself, and that were too few
  reason TEXT NOT NULL,
  persistent_bytes INTEGER NOT NULL,  -- most that it has used
  ephemeral_bytes INTEGER NOT NULL,
  estimate TEXT,               -- that of the next attempt
  log TEXT NOT NULL,           -- name of its log in the job's directory
  PRIMARY KEY (job, attempt)
) WITHOUT ROWID;
INSERT INTO "attempts" VALUES(1,1,1,'host0',1790000003000000,1790000009000000,0,NULL,0,0,'',104857600,52428800,NULL,'log');
INSERT INTO "attempts" VALUES(3,1,0,'host0',1790000001000000,1790000002000000,1,NULL,0,0,'exited with code 1',0,0,NULL,'log');
CREATE TABLE events (
  seq INTEGER PRIMARY KEY,
  wall_us INTEGER NOT NULL,
  now_us INTEGER NOT NULL,
  kind TEXT NOT NULL,
  job INTEGER,
  ring INTEGER NOT NULL,       -- 1: frequent kind, only the newest are kept
  data TEXT NOT NULL
);
INSERT INTO "events" VALUES(41,1790000000000000,1,'Tick',NULL,1,'{}');
CREATE TABLE history (
  number INTEGER PRIMARY KEY,  -- in the order in which rows were recorded
  series TEXT NOT NULL,
  key TEXT NOT NULL,           -- what of the series: a device, a lane, an outcome, a pair of commands
  owner INTEGER NOT NULL,      -- uid of the user whose history it is; -1: nobody's
  step_us INTEGER NOT NULL,    -- 0: exact; otherwise the value has one entry for so much time
  begin_us INTEGER NOT NULL,   -- wall clock
  end_us INTEGER NOT NULL,
  value BLOB NOT NULL
);
INSERT INTO "history" VALUES(1,'use','succeeded',0,0,1789948800000000,1789948800000000,X'5B363030303030302C312C305D');
INSERT INTO "history" VALUES(2,'pace','["host","key",""]',-1,0,1790000009000000,1790000009000000,X'5B353030303030302C3130305D');
INSERT INTO "history" VALUES(3,'device','host0',-1,60000000,1789999980000000,1790000040000000,X'81AA757365645F62797465739401060502');
CREATE TABLE jobs (
  id INTEGER PRIMARY KEY,
  owner INTEGER NOT NULL,
  gid INTEGER NOT NULL,
  spec TEXT NOT NULL,          -- SubmitRequest as JSON, without env
  env TEXT NOT NULL,           -- the environment as JSON; never leaves the daemon except to the job
  estimate TEXT,               -- carpool.core.model.Estimate as JSON
  submitted_us INTEGER NOT NULL,
  cancelled INTEGER NOT NULL DEFAULT 0,
  phase TEXT NOT NULL,
  device TEXT,
  outcome TEXT,
  exit_code INTEGER,
  signal INTEGER,
  reason_code TEXT,
  reason_text TEXT,
  persistent_bytes INTEGER NOT NULL DEFAULT 0,
  ephemeral_bytes INTEGER NOT NULL DEFAULT 0,
  iterations INTEGER NOT NULL DEFAULT 0,
  device_us INTEGER NOT NULL DEFAULT 0,
  switches INTEGER NOT NULL DEFAULT 0,
  residue_bytes INTEGER NOT NULL DEFAULT 0,
  started_us INTEGER,
  ended_us INTEGER,
  out_bytes INTEGER NOT NULL DEFAULT 0,  -- moved to the host store in all, and the time that took
  out_us INTEGER NOT NULL DEFAULT 0,
  in_bytes INTEGER NOT NULL DEFAULT 0,   -- moved back
  in_us INTEGER NOT NULL DEFAULT 0
);
INSERT INTO "jobs" VALUES(1,0,0,'{"argv":["python","train.py"],"cwd":"/","env":{},"retries":1}','{}',NULL,1790000000000000,0,'ended','host0','succeeded',0,NULL,NULL,NULL,0,0,100,0,0,0,1790000003000000,1790000009000000,0,0,0,0);
INSERT INTO "jobs" VALUES(3,0,0,'{"argv":["true"],"cwd":"/","env":{},"retries":1}','{"PATH":"/usr/bin:/bin"}',NULL,1790000000000000,0,'running','host0',NULL,NULL,NULL,NULL,NULL,0,0,0,0,0,0,1790000001000000,NULL,0,0,0,0);
CREATE TABLE losses (  -- what the journal had once, and has no more
  number INTEGER PRIMARY KEY,
  found_us INTEGER NOT NULL,   -- wall clock
  first_job INTEGER,           -- numbers of jobs that were acknowledged; NULL: none is known
  last_job INTEGER,
  text TEXT NOT NULL
);
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "meta" VALUES('device:host0','{"quantum_us":7000,"oversubscribe":"off"}');
INSERT INTO "meta" VALUES('last_job','3');
INSERT INTO "meta" VALUES('settings','{"policy":"srtf","grace_us":30000}');
INSERT INTO "meta" VALUES('use:3','[2,true]');
INSERT INTO "meta" VALUES('version','1');
CREATE TABLE models (  -- registered for inference
  owner INTEGER NOT NULL,
  name TEXT NOT NULL,
  spec TEXT NOT NULL,          -- ModelRequest as JSON, without env
  env TEXT NOT NULL,           -- the environment as JSON; never leaves the daemon except to the owner
  added_us INTEGER NOT NULL,
  PRIMARY KEY (owner, name)
) WITHOUT ROWID;
INSERT INTO "models" VALUES(0,'bert','{"factory":"shop:bert","python":"/bin/python","cwd":"/","env":{}}','{}',1790000000000000);
CREATE TABLE notices (  -- of starts and ends of jobs
  job INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  event TEXT NOT NULL,
  place INTEGER NOT NULL,      -- of the target in the submission
  notice TEXT NOT NULL,        -- carpool.daemon.journal.notices.Notice as JSON
  state TEXT NOT NULL,         -- owed, sent or failed
  tries INTEGER NOT NULL,      -- that have begun
  text TEXT NOT NULL,          -- what was wrong with the last one
  PRIMARY KEY (job, attempt, event, place)
);
CREATE TABLE placements (
  job INTEGER PRIMARY KEY,
  devices TEXT NOT NULL,       -- those that it was given last, its own first, as JSON
  decision TEXT NOT NULL       -- carpool.core.decision.Placement as JSON
);
INSERT INTO "placements" VALUES(1,'["host0"]','null');
CREATE TABLE quarantine (  -- rows that could not be read
  number INTEGER PRIMARY KEY,
  found_us INTEGER NOT NULL,   -- wall clock
  source TEXT NOT NULL,        -- the table that the row was in
  job INTEGER,                 -- the job that it is about, where that is known
  reason TEXT NOT NULL,
  data TEXT NOT NULL           -- the row as JSON, without environments
);
CREATE TABLE runs (  -- the last ones of each command that ended well
  command_key TEXT NOT NULL,
  ended_us INTEGER NOT NULL,
  persistent_bytes INTEGER NOT NULL,
  ephemeral_bytes INTEGER NOT NULL,
  iterations INTEGER NOT NULL,
  iteration_us INTEGER
);
INSERT INTO "runs" VALUES('key',1790000009000000,104857600,52428800,100,50000);
CREATE INDEX jobs_unfinished ON jobs (id) WHERE phase != 'ended';
CREATE INDEX events_ring ON events (seq) WHERE ring = 1;
CREATE INDEX runs_by_command ON runs (command_key, ended_us);
CREATE INDEX history_bins ON history (series, key, owner, step_us, end_us);
CREATE TRIGGER last_job AFTER INSERT ON jobs BEGIN
  UPDATE meta SET value = NEW.id WHERE key = 'last_job' AND CAST(value AS INTEGER) < NEW.id;
END;
COMMIT;
