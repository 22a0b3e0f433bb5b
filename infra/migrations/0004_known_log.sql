-- The identity of the log that the read models of this database are built from: at most one row.
create table known_log (
    the_one boolean primary key default true check (the_one),
    log_id uuid not null
);
