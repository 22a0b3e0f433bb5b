-- Rebuilds that have not ended: what each makes anew, in a schema of its own, and how far it is.

-- holder is who may write for it: whoever takes it over changes that, and the former one's transactions are refused.
-- position: the log is folded in slices up to here, then the shadow tables follow the log; null: not begun.
create table rebuilds (
    id uuid primary key default gen_random_uuid(),
    fast boolean not null default false,
    holder uuid,
    cancelled boolean not null default false,
    position bigint,
    indexed boolean not null default false,
    began_at timestamptz not null default clock_timestamp(),
    done_before bigint not null default 0,
    error text,
    failed_at timestamptz
);

-- What it makes: a projection is rebuilt once at a time.
create table rebuilt_projections (
    name text primary key,
    version int not null,
    rebuild uuid not null references rebuilds on delete cascade
);

-- The log in the order of its streams, cut into pieces: from the first stream, up to and without the next piece's. late are
-- projections that met something in a piece which they cannot take in: they fold it once more, event by event.
create table rebuild_slices (
    rebuild uuid not null references rebuilds on delete cascade,
    number int not null,
    first_stream text collate "C",
    next_stream text collate "C",
    events bigint not null,
    done boolean not null default false,
    late text[] not null default '{}',
    primary key (rebuild, number)
);
