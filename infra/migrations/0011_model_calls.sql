-- What models were really asked, one row per try of a call: kept while the audit is on, until it is too old.

-- The parts of requests as JSON text, each once: a message, the list of all tools, the parameters.
create table audit_parts (
    id bigint generated always as identity primary key,
    hash bytea not null unique,
    body text not null
);

-- Which conversations have a part: it goes with the last of them. Who changes a conversation's rows here and in model_calls
-- holds the advisory lock of its audit.
create table audit_uses (
    conversation_id uuid not null,
    part bigint not null references audit_parts,
    primary key (conversation_id, part)
);
create index audit_uses_part on audit_uses (part);

-- outcome is null while a call runs, and for ever if its process died in the middle of it.
create table model_calls (
    id uuid primary key,
    conversation_id uuid not null,
    purpose text not null,
    turn int,
    step int,
    attempt int,
    try int not null,
    model text not null,
    messages bigint[] not null,
    tools bigint not null,
    params bigint not null,
    context_seq int,
    summary_to_seq int,
    summary_version int,
    injected json not null,
    left_out json not null,
    cut_off json not null,
    redacted boolean not null,
    began_at timestamptz not null,
    outcome text,
    reason text,
    finish_reason text,
    usage json,
    latency_ms int
);
create index model_calls_of_conversation on model_calls (conversation_id, context_seq);
create index model_calls_age on model_calls (began_at);

-- Conversations that were erased a short while ago: what a worker has still to say about them is not kept.
create table audit_erased (
    conversation_id uuid primary key,
    erased_at timestamptz not null default clock_timestamp()
);
