"""The embedded stack: Postgres, Valkey, the workers, beat and Flower, kept running by one supervisor.

state.py       stack.json: what runs, where; the lock that says a stack is running
secrets.py     passwords, made once for each home
process.py     one part: its process, its log, its end
postgres.py    the Postgres part (postgres_user.py: what changes when root starts it)
valkey.py      the Valkey part
services.py    the Celery parts: workers, beat, Flower
supervisor.py  starts all of it in order, restarts what dies, stops it in the reverse order
testing.py     Postgres and Valkey alone, for tests
"""
