-- The log of the PostgreSQL event store: one table, one function per write. Everything is named in full.

create schema log;

-- json, not jsonb: the text stays as it was written, and \u0000 escapes are welcome.
create table log.events (
    position bigint not null,
    event_id uuid not null,
    stream   text collate "C" not null,
    seq      integer not null,
    type     text collate "C" not null,
    data     json not null,
    metadata json not null,
    primary key (position),
    unique (stream, seq)
);

-- One group of appends, judged one by one, in one transaction and one round trip.
--
-- Append i wants a_count[i] events, e_*[a_first[i]] and the following ones, in a_stream[i] at version a_expected[i].
-- Returns for each, in the order of the arguments, status and seq and position of its last event:
--   0 = moved (seq is the stream's version), 1 = written, 2 = was there already, 3 = the stream was deleted.
-- The lock comes before every read: each later statement then sees all that was committed before the lock was given.
create function log.append(
    a_stream text[], a_expected bigint[], a_first integer[], a_count integer[],
    e_id uuid[], e_type text[], e_data json[], e_metadata json[]
) returns table (status integer, seq integer, "position" bigint)
language plpgsql as $$
#variable_conflict use_column
declare
    groups      constant integer := cardinality(a_stream);
    head        bigint;
    next        bigint;
    stream      text;
    version     integer;
    refused     boolean := false;
    r_status    integer[] := array_fill(0, array[groups]);
    r_seq       integer[] := array_fill(0, array[groups]);
    r_position  bigint[] := array_fill(null::bigint, array[groups]);
    e_stream    text[] := array_fill(null::text, array[cardinality(e_id)]);
    e_seq       integer[] := array_fill(null::integer, array[cardinality(e_id)]);
    e_position  bigint[] := array_fill(null::bigint, array[cardinality(e_id)]);
    wish        record;
    known       record;
    e           integer;
begin
    perform pg_advisory_xact_lock(7261);
    select coalesce(max(events.position), 0) into head from log.events;
    next := head;
    for wish in
        select w.stream, w.expected, w.first, w.count, w.i::integer as i,
               coalesce(newest.seq, 0) as version, coalesce(newest.type = '$streamDeleted', false) as deleted
        from unnest(a_stream, a_expected, a_first, a_count) with ordinality as w (stream, expected, first, count, i)
        left join lateral (
            select events.seq, events.type from log.events
            where events.stream = w.stream order by events.seq desc limit 1
        ) as newest on true
        order by w.stream collate "C", w.i
    loop
        if stream is distinct from wish.stream then
            stream := wish.stream;
            version := wish.version;
        end if;
        if wish.deleted then
            r_status[wish.i] := 3;
        elsif wish.expected = version then
            for e in wish.first .. wish.first + wish.count - 1 loop
                version := version + 1;
                next := next + 1;
                e_stream[e] := stream;
                e_seq[e] := version;
                e_position[e] := next;
            end loop;
            r_status[wish.i] := 1;
            r_position[wish.i] := next;
        else
            refused := true;
        end if;
        r_seq[wish.i] := version;
    end loop;

    if next > head then
        insert into log.events (position, event_id, stream, seq, type, data, metadata)
        select new.position, new.id, new.stream, new.seq, new.type, new.data, new.metadata
        from unnest(e_position, e_id, e_stream, e_seq, e_type, e_data, e_metadata)
            as new (position, id, stream, seq, type, data, metadata)
        where new.position is not null;
        perform pg_notify('log_events', next::text);
    end if;

    -- Last, because here the group's own rows count: a repeat may stand beside its original.
    if refused then
        for known in
            select w.i::integer as i, w.expected + w.count as seq, max(events.position) as position,
                   array_agg(events.event_id order by events.seq) as ids,
                   e_id[w.first : w.first + w.count - 1] as sent
            from unnest(a_stream, a_expected, a_first, a_count, r_status) with ordinality
                as w (stream, expected, first, count, status, i)
            join log.events on events.stream = w.stream
                and events.seq > w.expected and events.seq <= w.expected + w.count
            where w.status = 0
            group by w.i, w.expected, w.first, w.count
        loop
            if known.ids = known.sent then
                r_status[known.i] := 2;
                r_seq[known.i] := known.seq;
                r_position[known.i] := known.position;
            end if;
        end loop;
    end if;

    return query select * from unnest(r_status, r_seq, r_position);
end $$;

-- Forget a stream's events and leave a tombstone, so that no position is given twice and subscribers learn of it.
create function log.delete_stream(a_stream text, tombstone_id uuid) returns void
language plpgsql as $$
declare
    next   bigint;
    newest record;
begin
    perform pg_advisory_xact_lock(7261);
    select coalesce(max(events.position), 0) + 1 into next from log.events;
    select events.seq, events.type into newest from log.events
    where events.stream = a_stream order by events.seq desc limit 1;
    if newest.type = '$streamDeleted' then
        return;
    end if;
    delete from log.events where events.stream = a_stream;
    insert into log.events (position, event_id, stream, seq, type, data, metadata)
    values (next, tombstone_id, a_stream, coalesce(newest.seq, 0) + 1, '$streamDeleted', '{}', '{}');
    perform pg_notify('log_events', next::text);
end $$;
