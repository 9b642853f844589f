# SPDX-License-Identifier: GPL-2.0-only
"""Response times by the Python package response-time-analysis (Bozhko and Brandenburg), for prosa.rs.

Reads a task set from each line of standard input, "WCET,DEADLINE,PERIOD ..." in whole units, the most important task
first. Writes a line each: the response times under EDF, "|", those under fixed priorities; "-" where none was found.
"""

import sys

from response_time_analysis import edf, fp
from response_time_analysis.model import WCET, Deadline, FullyPreemptive, IdealProcessor, Priority, Sporadic
from response_time_analysis.model import Task, taskset

HORIZON = 100_000


def answers(rta, tasks):
    found = (rta(taskset(*tasks), task, IdealProcessor(), horizon=HORIZON) for task in tasks)
    return " ".join("-" if a.response_time_bound is None else str(a.response_time_bound) for a in found)


for line in sys.stdin:
    tasks = []
    for priority, task in zip(range(1000, 0, -1), line.split()):
        wcet, deadline, period = map(int, task.split(","))
        # No two tasks may be equal in every respect: the package would take them for one.
        tasks.append(Task(Sporadic(period), FullyPreemptive(WCET(wcet)), Deadline(deadline), Priority(priority)))
    print(answers(edf.rta, tasks), "|", answers(fp.rta, tasks))
