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
  out_of_memory INTEGER NOT NULL,
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
CREATE TABLE beside (  -- commands whose last successful run used its device beside Carpool
  command_key TEXT PRIMARY KEY,
  job INTEGER NOT NULL,
  updated_us INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO "beside" VALUES('key',1,1790000009000000);
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
  in_us INTEGER NOT NULL DEFAULT 0,
  engine_automatic INTEGER NOT NULL DEFAULT 0,  -- the user has left the engine to the daemon
  engine_why TEXT NOT NULL DEFAULT ''
);
INSERT INTO "jobs" VALUES(1,0,0,'{"argv":["python","train.py"],"cwd":"/","env":{},"retries":1}','{}',NULL,1790000000000000,0,'ended','host0','succeeded',0,NULL,NULL,NULL,0,0,100,0,0,0,1790000003000000,1790000009000000,0,0,0,0,0,'');
INSERT INTO "jobs" VALUES(3,0,0,'{"argv":["true"],"cwd":"/","env":{},"retries":1}','{"PATH":"/usr/bin:/bin"}',NULL,1790000000000000,0,'running','host0',NULL,NULL,NULL,NULL,NULL,0,0,0,0,0,0,1790000001000000,NULL,0,0,0,0,0,'');
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "meta" VALUES('device:host0','{"quantum_us":7000,"oversubscribe":"off"}');
INSERT INTO "meta" VALUES('schema','4');
INSERT INTO "meta" VALUES('settings','{"policy":"srtf","grace_us":30000}');
INSERT INTO "meta" VALUES('use:3','[2,true,false]');
CREATE TABLE models (  -- registered for inference
  owner INTEGER NOT NULL,
  name TEXT NOT NULL,
  spec TEXT NOT NULL,          -- ModelRequest as JSON, without env
  env TEXT NOT NULL,           -- the environment as JSON; never leaves the daemon except to the owner
  added_us INTEGER NOT NULL,
  PRIMARY KEY (owner, name)
) WITHOUT ROWID;
INSERT INTO "models" VALUES(0,'bert','{"factory":"shop:bert","python":"/bin/python","cwd":"/","env":{}}','{}',1790000000000000);
CREATE TABLE paces (  -- how long an iteration takes, alone and beside others
  model TEXT NOT NULL,         -- of the devices, and how they are shared
  kind TEXT NOT NULL,          -- command key
  beside TEXT NOT NULL,        -- command key; empty: alone
  total_us INTEGER NOT NULL,   -- device time of ...
  iterations INTEGER NOT NULL, -- ... so many; that is what the mean is worth
  measured_us INTEGER NOT NULL,  -- when, last; wall clock
  PRIMARY KEY (model, kind, beside)
) WITHOUT ROWID;
INSERT INTO "paces" VALUES('host','key','',5000000,100,1790000009000000);
CREATE TABLE placements (
  job INTEGER PRIMARY KEY,
  devices TEXT NOT NULL,       -- those that it was given last, its own first, as JSON
  decision TEXT NOT NULL       -- carpool.core.decision.Placement as JSON
);
INSERT INTO "placements" VALUES(1,'["host0"]','null');
CREATE TABLE runs (  -- the last ones of each command that ended well
  command_key TEXT NOT NULL,
  ended_us INTEGER NOT NULL,
  persistent_bytes INTEGER NOT NULL,
  ephemeral_bytes INTEGER NOT NULL,
  iterations INTEGER NOT NULL,
  iteration_us INTEGER
);
INSERT INTO "runs" VALUES('key',1790000009000000,104857600,52428800,100,50000);
CREATE TABLE telemetry (
  device TEXT NOT NULL,
  step_us INTEGER NOT NULL,    -- how much time a row covers: a minute or an hour
  start_us INTEGER NOT NULL,   -- wall clock
  quantity TEXT NOT NULL,
  least INTEGER NOT NULL,
  total INTEGER NOT NULL,      -- sum over the samples
  most INTEGER NOT NULL,
  samples INTEGER NOT NULL,
  PRIMARY KEY (device, step_us, start_us, quantity)
) WITHOUT ROWID;
CREATE INDEX jobs_unfinished ON jobs (id) WHERE phase != 'ended';
CREATE INDEX events_ring ON events (seq) WHERE ring = 1;
CREATE INDEX runs_by_command ON runs (command_key, ended_us);
COMMIT;
