BEGIN TRANSACTION;
CREATE TABLE events (
  seq INTEGER PRIMARY KEY,
  wall_us INTEGER NOT NULL,
  now_us INTEGER NOT NULL,
  kind TEXT NOT NULL,
  job INTEGER,
  ring INTEGER NOT NULL,       -- 1: frequent kind, only the newest are kept
  data TEXT NOT NULL
);
CREATE TABLE history (
  command_key TEXT PRIMARY KEY,
  persistent_bytes INTEGER NOT NULL,
  ephemeral_bytes INTEGER NOT NULL,
  iterations INTEGER NOT NULL,
  iteration_us INTEGER,
  updated_us INTEGER NOT NULL
) WITHOUT ROWID;
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
  ended_us INTEGER
, out_bytes INTEGER NOT NULL DEFAULT 0, out_us INTEGER NOT NULL DEFAULT 0, in_bytes INTEGER NOT NULL DEFAULT 0, in_us INTEGER NOT NULL DEFAULT 0);
INSERT INTO "jobs" VALUES(1,1000,1000,'{"argv":["python","train.py"],"cwd":"/home/ada","env":{},"name":"","iterations":null,"duration_us":null,"persistent_bytes":null,"ephemeral_bytes":null,"weight":100,"after":[],"device":null,"foreground":false}','{}',NULL,1790000000000000,0,'ended','host0','succeeded',0,NULL,NULL,NULL,104857600,52428800,100,5000000,7,0,1790000001000000,1790000009000000,0,0,0,0);
INSERT INTO "jobs" VALUES(2,0,0,'{"argv":["./simulation"],"cwd":"/","env":{},"engine":"checkpoint"}','{}',NULL,1790000000000000,0,'ended',NULL,'succeeded',0,NULL,NULL,NULL,0,0,0,0,0,0,1790000000000001,1790000000000002,4096,0,0,0);
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO jobs VALUES(3,1000,1000,'{"argv":["python","train.py"],"cwd":"/home/ada","env":{}}','{}',NULL,1790000000000000,0,'ended','host0','failed',1,NULL,'exit','exited with code 1',0,0,0,0,0,0,1790000001000000,1790000009000000,0,0,0,0);
INSERT INTO "meta" VALUES('schema','2');
INSERT INTO "meta" VALUES('settings','{"policy":"srtf","allocation":"lanes","backfill":null,"quantum_us":null,"max_switch_share_ppm":20000,"grace_us":30000,"forced_after_us":10000000,"reserve_after_us":60000000,"growth_step":4194304,"max_lanes":null,"warm_limit":4,"warm_timeout_us":10000000,"measured_after":3,"measured_quiet_us":2000000,"kill_after_us":10000000,"extra":{}}');
CREATE INDEX jobs_unfinished ON jobs (id) WHERE phase != 'ended';
CREATE INDEX events_ring ON events (seq) WHERE ring = 1;
COMMIT;
