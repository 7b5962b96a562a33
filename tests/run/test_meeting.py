"""The meeting of the processes of a run: each of them gets one line where they cannot make one."""

import dataclasses
import json
import socket
import threading
import time

import many_processes
import pytest

from dpgen_jax.core import hosts
from dpgen_jax.core.errors import UserError

LONG = 120


def arrival(process, processes=2, version="1", **flags):
    return hosts.Arrival(process, processes, version, flags, 1)


def met(*arrivals, seconds=LONG, place=None, agreed=None):
    """Returns what each is told, in order: nothing, or its error; `agreed` gets their threads."""
    place, errors = place or many_processes.coordinator(), [None] * len(arrivals)

    def come(i):
        try:
            all_met = hosts.meet(place, arrivals[i], seconds)
            errors[i] = ""
            if agreed is not None:
                agreed.append(all_met.threads)
        except UserError as error:
            errors[i] = str(error)

    threads = [threading.Thread(target=come, args=(i,)) for i in range(len(arrivals))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * LONG)
    return errors


def test_all_come_in_any_order():
    assert met(*(arrival(i, 4) for i in (3, 1, 0, 2))) == [""] * 4


@pytest.mark.parametrize("numbers", [(2, 4, 3), (4, 2, 2)])
def test_all_take_the_largest_number_of_threads(numbers):
    agreed = []
    assert met(*(dataclasses.replace(arrival(i, 3), threads=n) for i, n in enumerate(numbers)),
               agreed=agreed) == [""] * 3
    assert agreed == [4] * 3


def test_process_0_names_who_does_not_come():
    leader, other = met(arrival(0, 4), arrival(2, 4), seconds=3)
    assert leader.startswith("process 1, 3 of 4 did not come to port") or (
        leader.startswith("process 1, 2, 3 of 4"))  # on a machine where a thread takes so long
    assert other == leader or "no process answers" in other


def test_nobody_answers():
    began = time.monotonic()
    (errors,) = met(arrival(1), seconds=0.5)
    assert errors.startswith("no process answers at --coordinator 127.0.0.1:")
    assert time.monotonic() - began < LONG


@pytest.mark.parametrize(("other", "line"), [
    (arrival(1, 3), "process 1 was started with --processes 3, and process 0 with 2"),
    (arrival(1, version="2"), "process 1 has JAX 2, and process 0 1"),
    (arrival(1, state="disk", seed="3"),
     "process 1 was started with another --seed, --state than process 0; start all with the same "
     "command except for --process-id")])
def test_processes_that_differ_are_told_how(other, line):
    assert met(arrival(0), other) == [line, line]


def test_of_two_with_one_number_one_is_refused():
    """While the others wait for process 2: one that comes when all have met finds nobody."""
    place, errors = many_processes.coordinator(), []
    threads = [threading.Thread(target=lambda i=i: errors.extend(met(arrival(i, 3), place=place)))
               for i in (0, 1, 1)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + LONG
    while not errors and time.monotonic() < end:
        time.sleep(0.01)
    assert len(errors) == 1 and "another process 1 has already" in errors[0]
    assert met(arrival(2, 3), place=place) == [""]
    for thread in threads:
        thread.join(LONG)
    assert errors[1:] == ["", ""]


def come_and_die(place, process, processes):
    """A process that ends while it waits for the others."""
    words = json.dumps(dataclasses.asdict(arrival(process, processes))).encode() + b"\n"
    send(place, words)


def send(place, words):
    host, port = place.split(":")
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        try:
            with socket.create_connection((host, int(port))) as other:
                other.sendall(words)
            return
        except ConnectionRefusedError:
            time.sleep(0.05)


def test_a_process_that_is_started_again_takes_the_place_of_the_dead_one():
    place = many_processes.coordinator()
    leader = threading.Thread(target=hosts.meet, args=(place, arrival(0, 3), LONG))
    leader.start()
    come_and_die(place, 1, 3)
    errors = met(arrival(2, 3), arrival(1, 3), place=place)
    leader.join(LONG)
    assert errors == ["", ""] and not leader.is_alive()


def test_a_process_that_died_is_one_that_did_not_come():
    place, errors = many_processes.coordinator(), []
    leader = threading.Thread(target=lambda: errors.extend(met(arrival(0, 3), place=place,
                                                               seconds=3)))
    leader.start()
    come_and_die(place, 1, 3)  # before process 2 comes: later on all would have met
    met(arrival(2, 3), place=place, seconds=3)
    leader.join(LONG)
    assert errors[0].startswith("process 1 of 3 did not come to port") or (
        errors[0].startswith("process 1, 2 of 3"))


@pytest.mark.parametrize("answer", [b"", b"\0\0\x12\4\0\0\0\0\0", b"[]\n"])
def test_who_comes_late_is_told_so(answer):
    """JAX's service, or another program, does not speak as process 0 does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        def serve():
            with server.accept()[0] as connection:
                connection.recv(1000)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        (errors,) = met(arrival(1), place=f"127.0.0.1:{server.getsockname()[1]}")
        thread.join(LONG)
    assert "the run has started without it" in errors


def test_a_process_learns_at_once_that_the_one_that_leads_is_gone():
    place, ends = many_processes.coordinator(), {}
    leader = threading.Thread(
        target=lambda: ends.update(leader=hosts.meet(place, arrival(0), LONG)))
    leader.start()
    (other,) = hosts.meet(place, arrival(1), LONG).connections
    leader.join(LONG)
    (here,) = ends["leader"].connections
    with other, here:
        other.settimeout(LONG)
        here.send(b"\x02")
        here.close()
        assert other.recv(1) == b"\x02" and other.recv(1) == b""


def test_what_is_no_process_of_a_run_is_left_alone():
    """A scan of ports, or a browser, ends no run."""
    place = many_processes.coordinator()
    leader = threading.Thread(target=hosts.meet, args=(place, arrival(0), LONG))
    leader.start()
    for words in (b"GET / HTTP/1.1\r\n\r\n", b"{}\n", json.dumps({"process": 1}).encode() + b"\n"):
        send(place, words)
    hosts.meet(place, arrival(1), LONG)
    leader.join(LONG)
    assert not leader.is_alive()


def test_a_port_that_is_used_and_a_place_that_is_none_are_named():
    with socket.create_server(("127.0.0.1", 0)) as server:
        (errors,) = met(arrival(0), place=f"127.0.0.1:{server.getsockname()[1]}")
    assert "cannot be used here" in errors
    assert met(arrival(0), place="host0") == [
        "--coordinator host0 is not HOST:PORT, such as host0:1234"]
