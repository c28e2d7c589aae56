"""The fuzzer that stays: generators and mutators for everything that reads from outside.

    ./dev fuzz 10                       ten minutes, shared by all targets
    ./dev fuzz 1 --only video --seed 7  one target, another sequence of inputs

Each target runs in a child process with limits on memory and time, under an audit hook. An input
breaks a promise when it gives another error than the target's own, a message that cannot be shown,
takes too long or too much memory, does what reading must never do, or ends the process. Such an
input is kept in `tests/hostile/kept/`, as the recipe that makes it and, if it is small, as bytes;
the tests use all kept inputs again.
"""
