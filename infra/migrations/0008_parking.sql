-- What a projection could not take in yet. The events themselves stay in the log: here is only where they begin.

-- Conversations of which a projection has folded nothing from `seq` on; everything up to `last_seq` waits, in order.
-- Who folds a conversation again holds its row for as long: a projector that meets it waits for the outcome.
create table parked (
    projection text not null,
    conversation_id uuid not null,
    seq int not null,
    position bigint not null,
    event_id uuid not null,
    type text not null,
    last_seq int not null,
    last_position bigint not null,
    error text not null,
    attempts int not null,
    since timestamptz not null default clock_timestamp(),
    tried_at timestamptz not null default clock_timestamp(),
    primary key (projection, conversation_id)
);

-- Conversations that were folded without their events of a type that the projector's code did not know: the first one.
create table skipped (
    projection text not null,
    conversation_id uuid not null,
    type text not null,
    seq int not null,
    position bigint not null,
    event_id uuid not null,
    primary key (projection, conversation_id, type)
);

alter table projections drop column skipped_position;
