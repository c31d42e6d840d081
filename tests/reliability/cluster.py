"""A redis-py client of a cluster: waits for a seat, says what it got, and gives it back."""

import os

from redis.cluster import RedisCluster

url = os.environ["REDIS_URL"]
with RedisCluster.from_url(url, decode_responses=True, socket_timeout=60) as cluster:
    words = "SEAT.ACQUIRE", os.environ["POOL"], "python", 1, "QUEUE", 600000, "BLOCK", 0
    print(cluster.execute_command(*words))
    print(cluster.execute_command("SEAT.RELEASE", os.environ["POOL"], "python"))
