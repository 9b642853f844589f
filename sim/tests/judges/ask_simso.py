# SPDX-License-Identifier: GPL-2.0-only
"""Plays task sets in SimSo (Chéramy, Hladik, Déplanche, "SimSo: a simulation tool to evaluate real-time multiprocessor
scheduling algorithms", 2014) for schedules.rs beside this folder.

Reads JSON from standard input: a list of {"policy", "cpus", "until", "tasks": [[first, period, deadline, work, home],
...]}, times in whole ms; home is the CPU under partitioned policies. Writes, for each set, what ran when: [task, cpu,
from, to], by task and time.
"""

import contextlib
import json
import sys
import types

# SimSo asks for this module, which Python 3.12 no longer has, and uses it only for schedulers in files.
sys.modules.setdefault("imp", types.ModuleType("imp"))

from simso.configuration import Configuration
from simso.core import Model
from simso.core.ProcEvent import ProcRunEvent
from simso.core.Scheduler import SchedulerInfo
from simso.utils import PartitionedScheduler


class Partitioned(PartitionedScheduler):
    """SimSo's scheduler of one CPU on each, with the tasks where the set says."""

    def packer(self):
        for task in self.task_list:
            self.affect_task_to_processor(task, self.processors[task.data["home"]])
        return True


class PartitionedEdf(Partitioned):
    def init(self):
        PartitionedScheduler.init(self, SchedulerInfo("simso.schedulers.EDF_mono"))


class PartitionedRm(Partitioned):
    def init(self):
        PartitionedScheduler.init(self, SchedulerInfo("simso.schedulers.RM_mono"))


SCHEDULERS = {
    "g-edf": "simso.schedulers.EDF",
    "p-edf": PartitionedEdf,
    "rm": "simso.schedulers.RM",
    "p-rm": PartitionedRm,
    "g-edzl": "simso.schedulers.EDZL",
}
CYCLES = 1000  # a millisecond; whatever happens does so at whole milliseconds


def play(case):
    configuration = Configuration()
    configuration.cycles_per_ms = CYCLES
    configuration.duration = case["until"] * CYCLES
    configuration.scheduler_info.clas = SCHEDULERS[case["policy"]]
    for i, (first, period, deadline, work, home) in enumerate(case["tasks"]):
        configuration.add_task(
            name=f"t{i}",
            identifier=i,
            period=period,
            activation_date=first,
            wcet=work,
            deadline=deadline,
            abort_on_miss=False,
            data={"home": home},
        )
    for cpu in range(case["cpus"]):
        configuration.add_processor(name=f"c{cpu}", identifier=cpu)
    model = Model(configuration)
    model.run_model()
    ran = []
    for cpu in model.processors:
        running, since = None, 0
        for at, event in list(cpu.monitor) + [(configuration.duration, None)]:
            if running is not None and at > since:
                ran.append([running, cpu.identifier, since // CYCLES, at // CYCLES])
            running = event.args.task.identifier if isinstance(event, ProcRunEvent) else None
            since = at
    return sorted(ran)


with contextlib.redirect_stdout(sys.stderr):
    answers = [play(case) for case in json.load(sys.stdin)]
json.dump(answers, sys.stdout)
