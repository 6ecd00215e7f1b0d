# A stand-in for the official image of Redis, from Debian's packages, for machines without a registry.
ARG BASE
FROM ${BASE}
RUN apt-get -q update \
    && DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends redis-server \
    && rm -rf /var/lib/apt/lists/* \
    && install --directory --owner=redis --group=redis /data
WORKDIR /data
CMD ["redis-server"]
