"""Who works on what, in virtual time: every input ends once, whatever dies, hangs or fails."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from samgraph.errors import EngineError
from samgraph.jobs.batch.driving import drive
from samgraph.jobs.batch.scheduler import (
    CRASH,
    TIMEOUT,
    Failure,
    ScheduleOptions,
    Scheduler,
    Send,
    Start,
    Stop,
    Success,
    Verdict,
)
from samgraph.jobs.batch.simulation import Cluster, SimulatedWorkers

GOOD = Success(b"{}")


def simulated(
    count: int, options: ScheduleOptions, cluster: Cluster, seed: int = 0
) -> tuple[dict[int, Verdict[int]], SimulatedWorkers]:
    """Run to the end; every input must have one verdict."""
    workers, verdicts = SimulatedWorkers(cluster, seed), list[Verdict[int]]()

    drive(Scheduler(iter(range(count)), options), workers, verdicts.extend)

    assert Counter(verdict.input for verdict in verdicts) == dict.fromkeys(range(count), 1)
    return {verdict.input: verdict for verdict in verdicts}, workers


def started(options: ScheduleOptions, count: int = 100) -> Scheduler[int]:
    """A scheduler whose workers are ready."""
    scheduler = Scheduler(iter(range(count)), options)
    for action in scheduler.actions(0.0):
        assert isinstance(action, Start)
        scheduler.ready(action.worker, 0.0)
    return scheduler


def sends(scheduler: Scheduler[int], now: float) -> list[Send[int]]:
    return [action for action in scheduler.actions(now) if isinstance(action, Send)]


@pytest.mark.parametrize("seed", range(5))
def test_every_input_ends_once_on_workers_that_fail(seed: int) -> None:
    options = ScheduleOptions(workers=1 + 3 * seed, batch=1 + seed, ahead=1 + seed % 3)
    cluster = Cluster(seconds_to_failure=60, kills=lambda work: work % 97 == 5)

    verdicts, workers = simulated(500, options, cluster, seed)

    given_up = {n for n, verdict in verdicts.items() if isinstance(verdict.outcome, Failure)}
    assert workers.deaths > 12
    assert given_up >= {n for n in range(500) if n % 97 == 5}
    # A machine may fail twice under the same input; that is rare.
    assert len(given_up) <= 6 + workers.deaths // 4


def test_two_hundred_workers_that_fail_now_and_then_stay_busy() -> None:
    options = ScheduleOptions(workers=200, batch=4)

    _, workers = simulated(40_000, options, Cluster(seconds_to_failure=3600), seed=3)

    assert workers.deaths > 3
    assert workers.utilisation(200) >= 0.90  # a short run: the start and the end weigh more


def test_an_input_that_kills_is_given_up_and_its_neighbours_are_not() -> None:
    options = ScheduleOptions(workers=2, batch=8)

    verdicts, workers = simulated(64, options, Cluster(kills=lambda work: work == 11))

    failed = [verdict for verdict in verdicts.values() if isinstance(verdict.outcome, Failure)]
    assert [(verdict.input, verdict.attempts) for verdict in failed] == [(11, 2)]
    assert failed[0].outcome == Failure(CRASH, "killed by signal 9")
    assert workers.deaths == 2


def test_inputs_are_taken_only_when_there_is_room() -> None:
    taken = []

    def inputs() -> Iterator[int]:
        for number in range(10_000):
            taken.append(number)
            yield number

    scheduler = Scheduler(inputs(), ScheduleOptions(workers=3, batch=4, ahead=2))
    for action in scheduler.actions(0.0):
        scheduler.ready(action.worker, 0.0)
    first = sends(scheduler, 0.0)

    assert sends(scheduler, 0.0) == []
    assert len(taken) == sum(len(send.inputs) for send in first) == 3 * 4 * 2
    scheduler.finished(first[0].worker, first[0].group, [GOOD] * 4, 1.0)
    assert [len(send.inputs) for send in sends(scheduler, 1.0)] == [4]


def test_what_had_not_begun_is_sent_again_without_blame() -> None:
    scheduler = started(ScheduleOptions(workers=1, batch=1, ahead=3), count=3)
    first, *rest = sends(scheduler, 0.0)
    scheduler.begun(first.worker, first.group, 0.0)

    for death in range(4):
        scheduler.died(first.worker + death, "gone", 1.0)
        for action in scheduler.actions(1.0):
            if isinstance(action, Start):
                scheduler.ready(action.worker, 1.0)
        again = sends(scheduler, 1.0)
        assert {work for send in again for work in send.inputs} <= {0, 1, 2}
    assert [verdict.input for verdict in scheduler.take_verdicts()] == []
    assert len(rest) == 2


def test_a_failure_that_may_pass_is_tried_again_later_and_alone() -> None:
    options = ScheduleOptions(workers=1, batch=4, retries=2, retry_delay=10.0)
    scheduler = started(options, count=4)
    (send,) = sends(scheduler, 0.0)
    passing = Failure("unusable image", "input/output error", may_pass=True)
    scheduler.finished(0, send.group, [GOOD, passing, Failure("unusable image", "bad"), GOOD], 1.0)

    assert [verdict.input for verdict in scheduler.take_verdicts()] == [0, 2, 3]
    assert sends(scheduler, 10.9) == []
    assert scheduler.next_time(2.0) == 11.0
    for attempt, (now, due) in enumerate(((11.0, 31.0), (31.0, None))):
        (again,) = sends(scheduler, now)
        assert again.inputs == (1,)
        scheduler.finished(0, again.group, [passing], now)
        assert scheduler.next_time(now) == due, attempt
    assert [(v.input, v.attempts, v.outcome) for v in scheduler.take_verdicts()] == [
        (1, 3, passing)
    ]
    assert scheduler.is_done


def test_an_input_that_hangs_loses_its_worker_and_is_given_up() -> None:
    scheduler = started(ScheduleOptions(workers=1, seconds_per_input=5.0, ahead=2), count=2)
    hanging, _ = sends(scheduler, 0.0)
    worker, now = hanging.worker, 0.0
    for _ in range(2):
        scheduler.begun(worker, hanging.group, now)
        assert scheduler.next_time(now) == now + 5.0
        actions = scheduler.actions(now + 5.0)
        now += 5.0
        assert actions[0] == Stop(worker)
        scheduler.finished(worker, hanging.group, [GOOD], now)  # too late: nobody listens
        (start,) = [action for action in actions if isinstance(action, Start)]
        worker = start.worker
        scheduler.ready(worker, now)
        (hanging,) = sends(scheduler, now)[:1]
    verdicts = scheduler.take_verdicts()

    assert [verdict.outcome for verdict in verdicts] == [Failure(TIMEOUT, "more than 5 s")]
    assert hanging.inputs != (verdicts[0].input,)


def test_workers_that_never_start_end_the_run() -> None:
    class Stillborn(SimulatedWorkers):
        def start(self, worker: int) -> None:
            from samgraph.jobs.batch.driving import Died

            self._workers[worker] = object()  # type: ignore[assignment]  # never looked at
            self._plan(self._now + 1, Died(worker, "killed by signal 4"))

    workers = Stillborn(Cluster())
    scheduler: Scheduler[int] = Scheduler(iter(range(3)), ScheduleOptions(workers=2))

    with pytest.raises(EngineError, match="killed by signal 4"):
        drive(scheduler, workers, lambda verdicts: None)
    assert workers.deaths == 5
    assert workers.now() > 3  # they were not started again at once


def test_no_input_means_no_worker() -> None:
    scheduler: Scheduler[Any] = Scheduler(iter(()), ScheduleOptions(workers=4))

    assert scheduler.is_done
    assert scheduler.actions(0.0) == []
