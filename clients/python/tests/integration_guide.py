"""The integration guide's own tests and examples; of its text only the imports are changed."""

import threading
import time
import uuid
from unittest import TestCase

from redis_seat.guide import RedisSeatAcquisitionError, redis_client


class TestRedisSeatManagement(TestCase):
    def setUp(self):
        self.license_id = str(uuid.uuid4())
        self.session_id = str(uuid.uuid4())

    def test_acquire_seat_success(self):
        """Test successful seat acquisition."""
        status, seats_used, seats_remaining = redis_client.acquire_seat(
            license_id=self.license_id,
            session_id=self.session_id,
            max_seats=3,
            metadata={'machine_id': 'test-machine'}
        )

        self.assertEqual(status, 'success')
        self.assertEqual(seats_used, 1)
        self.assertEqual(seats_remaining, 2)

    def test_acquire_seat_all_taken(self):
        """Test rejection when all seats are taken."""
        # Acquire all 3 seats
        for i in range(3):
            redis_client.acquire_seat(
                license_id=self.license_id,
                session_id=str(uuid.uuid4()),
                max_seats=3
            )

        # Try to acquire 4th seat (should fail)
        with self.assertRaises(RedisSeatAcquisitionError):
            redis_client.acquire_seat(
                license_id=self.license_id,
                session_id=str(uuid.uuid4()),
                max_seats=3
            )

    def test_heartbeat_refresh(self):
        """Test heartbeat TTL refresh."""
        # Acquire seat
        redis_client.acquire_seat(
            license_id=self.license_id,
            session_id=self.session_id,
            max_seats=3
        )

        # Refresh heartbeat
        status, expires_in = redis_client.refresh_heartbeat(
            license_id=self.license_id,
            session_id=self.session_id
        )

        self.assertEqual(status, 'success')
        self.assertEqual(expires_in, 360)

    def test_release_seat(self):
        """Test seat release."""
        # Acquire seat
        redis_client.acquire_seat(
            license_id=self.license_id,
            session_id=self.session_id,
            max_seats=3
        )

        # Release seat
        status, seats_used = redis_client.release_seat(
            license_id=self.license_id,
            session_id=self.session_id
        )

        self.assertEqual(status, 'success')
        self.assertEqual(seats_used, 0)

    def tearDown(self):
        """Clean up Redis keys after tests."""
        try:
            redis_client.release_seat(self.license_id, self.session_id)
        except:
            pass


def concurrent_acquire_test():
    """Test concurrent seat acquisitions (race condition test)."""
    license_id = str(uuid.uuid4())
    max_seats = 3
    num_threads = 10

    results = []
    def acquire_worker():
        try:
            session_id = str(uuid.uuid4())
            status, _, _ = redis_client.acquire_seat(
                license_id=license_id,
                session_id=session_id,
                max_seats=max_seats
            )
            results.append(('success', session_id))
        except RedisSeatAcquisitionError:
            results.append(('failed', None))

    # Spawn 10 threads trying to acquire 3 seats
    threads = [threading.Thread(target=acquire_worker) for _ in range(num_threads)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()

    # Verify results
    successes = [r for r in results if r[0] == 'success']
    failures = [r for r in results if r[0] == 'failed']

    assert len(successes) == 3, f"Expected 3 successes, got {len(successes)}"
    assert len(failures) == 7, f"Expected 7 failures, got {len(failures)}"

    print(f"✓ Race condition test passed: {len(successes)} seats acquired, {len(failures)} denied")
