"""The profiler waits for devices after each step that has left work there, and seldom after others."""

from __future__ import annotations

from fastsup.profile.recording.device_wait import DeviceWait


class Devices:
    """Devices with work of some seconds, and a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.work = 0.0
        self.waits = 0

    def wait(self) -> None:
        self.now += 1.0 + self.work  # A wait for idle devices takes a second.
        self.work = 0.0
        self.waits += 1

    def clock(self) -> float:
        return self.now

    def waits_of_steps_with_work(self, wait: DeviceWait) -> int:
        """How often a hundred steps are waited for that each leave work."""
        before = self.waits
        for _ in range(100):
            self.work += 5.0
            wait()
            assert self.work == 0.0
        return self.waits - before


def test_waits_where_there_is_work_and_seldom_elsewhere() -> None:
    devices = Devices()
    wait = DeviceWait(devices.wait, devices.clock)
    assert devices.waits_of_steps_with_work(wait) == 100

    before = devices.waits
    for _ in range(1000):
        wait()
    assert devices.waits - before < 25

    for _ in range(64):
        devices.work += 5.0
        wait()
    assert devices.waits_of_steps_with_work(wait) == 100
