# The module on the official Redis image. Both stages are Debian bookworm, so that the module meets the glibc that it was linked
# with: change both names together.
FROM rust:1.95-bookworm AS build

# Generating the bindings to Redis's module API takes libclang. Its version is the distribution's.
# hadolint ignore=DL3008
RUN apt-get update \
  && apt-get install -y --no-install-recommends clang libclang-dev \
  && rm -rf /var/lib/apt/lists/*

WORKDIR /src
COPY . .
RUN cargo build --locked --release

FROM redis:8.2-bookworm

COPY --from=build /src/target/release/libredis_seat.so /usr/lib/redis/modules/libredis_seat.so
COPY redis.conf /etc/redis/redis.conf

# redis.conf keeps its data where Debian's package does; in the official image that place is /data, which belongs to redis.
RUN ln -sT /data /var/lib/redis

# The image's user redis, by number, so that an orchestrator can see that it is not root.
USER 999:999
VOLUME /data
EXPOSE 6379

# Fails while the server loads its data, and if the module is missing. Where the default user has a password, give it to the
# container in REDISCLI_AUTH.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
  CMD ["redis-cli", "-e", "SEAT.COUNT", "healthcheck"]

# The server itself rather than the image's entry point, which would load the modules that the image brings along.
#
# Inside a container 127.0.0.1 is the container alone, hence another `bind` than in redis.conf. Protected mode stays on: until the
# default user has a password or is off, only the container itself is answered. Options given to `docker run` follow these.
ENTRYPOINT ["redis-server", "/etc/redis/redis.conf", "--bind", "0.0.0.0", "-::*"]
