-- Operational tables: written by workers and projectors, never a function of the log alone.

-- Who may do what only one process does at a time. epoch grows at every change of holder; a released row stays, so that it
-- goes on growing.
create table leases (
    key text primary key,
    holder text not null,
    epoch bigint not null,
    until timestamptz not null
);

-- How far each projection is. epoch is that of its leader's lease: a stopped leader that wakes up is refused by it.
create table projections (
    name text primary key,
    version int not null,
    generation int not null default 1,
    status text not null default 'running',
    position bigint not null default 0,
    epoch bigint not null default 0,
    updated_at timestamptz not null default now(),
    error text,
    skipped_position bigint
);

-- What a model has said so far in a reply that is not yet in the log; lost with a crash of the database, by design.
-- turn, step, attempt and try name the stream of deltas, index is the last delta that the texts contain.
create unlogged table live_turns (
    conversation_id uuid primary key,
    turn int not null,
    step int not null,
    attempt int not null,
    try int not null,
    index int not null,
    text text not null default '',
    thinking text not null default '',
    updated_at timestamptz not null default now()
) with (fillfactor = 50);
