#!/bin/sh
# As the official image does: make the cluster and the database once, then become the server.
set -eu
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    umask 077
    printf '%s\n' "$POSTGRES_PASSWORD" > /tmp/password
    # shellcheck disable=SC2086 # several options in one variable
    initdb -D "$PGDATA" -U "$POSTGRES_USER" --pwfile=/tmp/password ${POSTGRES_INITDB_ARGS:-} > /dev/null
    rm /tmp/password
    {
        echo "listen_addresses = '*'"
        echo "unix_socket_directories = '/var/run/postgresql'"
    } >> "$PGDATA/postgresql.conf"
    echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
    pg_ctl -D "$PGDATA" -w -s -o "-c listen_addresses=''" start > /dev/null
    [ "$POSTGRES_DB" = postgres ] || createdb -h /var/run/postgresql -U "$POSTGRES_USER" "$POSTGRES_DB"
    pg_ctl -D "$PGDATA" -w -s -m fast stop > /dev/null
fi
exec "$@"
