-- Times are Unix seconds (UTC). JSON columns hold the structs of watchtower/model.py.

CREATE TABLE meta (
  key TEXT PRIMARY KEY,
  value BLOB NOT NULL
) WITHOUT ROWID;

CREATE TABLE cursor (
  node TEXT PRIMARY KEY,
  cursor TEXT NOT NULL
) WITHOUT ROWID;

-- One row a run, kept after the run is forgotten so that its page still opens. A rowid table: views and memories are large.
CREATE TABLE run (
  run_id TEXT PRIMARY KEY,
  view TEXT,
  memory BLOB,
  updated_at REAL NOT NULL,
  forgotten_at REAL
);

CREATE TABLE transition (
  id INTEGER PRIMARY KEY,
  at REAL NOT NULL,
  run_id TEXT NOT NULL,
  previous TEXT,
  state TEXT NOT NULL,
  since REAL NOT NULL,
  reason TEXT NOT NULL,
  verdict TEXT NOT NULL
);
CREATE INDEX transition_of_run ON transition (run_id, id);
CREATE INDEX transition_at ON transition (at);

-- `id` is what people say and type; `uid` is what names the episode for ever.
CREATE TABLE incident (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  uid TEXT NOT NULL UNIQUE,
  subject TEXT NOT NULL,
  run_id TEXT,
  open INTEGER NOT NULL,
  opened_at REAL NOT NULL,
  resolved_at REAL,
  incident TEXT NOT NULL
);
CREATE UNIQUE INDEX one_open_incident_per_subject ON incident (subject) WHERE open = 1;

CREATE TABLE outbox (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  sink TEXT NOT NULL,
  incident_uid TEXT NOT NULL,
  seq INTEGER NOT NULL,
  action TEXT NOT NULL CHECK (action IN ('trigger', 'update', 'resolve')),
  owed TEXT NOT NULL,
  form INTEGER NOT NULL DEFAULT 0,
  state TEXT NOT NULL DEFAULT 'pending'
    CHECK (state IN ('pending', 'inflight', 'delivered', 'superseded', 'dead')),
  created_at REAL NOT NULL,
  not_before REAL NOT NULL,
  first_tried_at REAL,
  attempts INTEGER NOT NULL DEFAULT 0,
  ambiguous INTEGER NOT NULL DEFAULT 0,
  last_detail TEXT,
  ended_at REAL,
  UNIQUE (sink, incident_uid, seq)
);
CREATE INDEX outbox_due ON outbox (sink, not_before) WHERE state IN ('pending', 'inflight');
CREATE INDEX outbox_of_incident ON outbox (incident_uid, seq);
CREATE INDEX outbox_ended ON outbox (ended_at) WHERE ended_at IS NOT NULL;

-- A sink that must not be spoken to for a while: it asked for silence, fails, or is broken.
CREATE TABLE sink (
  name TEXT PRIMARY KEY,
  held_until REAL,
  hold_reason TEXT,
  last_delivered_at REAL
) WITHOUT ROWID;

-- Ten-second grid, time first: such keys append, run-first keys would rewrite a page per run and round.
CREATE TABLE sample (
  at INTEGER NOT NULL,
  run_id TEXT NOT NULL,
  power_share REAL,
  step INTEGER,
  PRIMARY KEY (at, run_id)
) WITHOUT ROWID;
