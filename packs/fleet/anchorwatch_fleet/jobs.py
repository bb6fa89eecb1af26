"""Proof jobs: real work with a result that can be checked, in three sizes. Pure."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from anchorwatch.packs import BadInput, check_token

from anchorwatch_fleet.factor import is_prime
from anchorwatch_fleet.proofs import Certificate, certify, from_json, to_json, verify

Size = Literal["small", "medium", "large"]
Fault = Literal["", "hang", "die"]

SIZES: tuple[Size, ...] = get_args(Size)
FAULTS: tuple[Fault, ...] = get_args(Fault)
MIXED = "mixed"
FACTOR_BITS: Mapping[Size, int] = {"small": 36, "medium": 38, "large": 41}
"""Bits of each of the two large factors of p - 1. Finding one costs about 2**(bits / 2) steps: on a common core 0.1, 0.2 and
0.5 s, by luck up to three times more or less."""


@dataclass(frozen=True, slots=True)
class Job:
    """Prove that ``prime`` is prime. ``fault``: misbehaviour of its first worker, to test the fleet."""

    job_id: str
    prime: int
    size: Size
    fault: Fault = ""


@dataclass(frozen=True, slots=True)
class Result:
    """A proof or an ``error``, with the worker and the duration."""

    job_id: str
    certificate: Certificate | None
    instance: str
    seconds: float
    error: str = ""

    def proves(self, prime: int) -> bool:
        """Whether this is a valid proof of ``prime``; the proof is verified."""
        return self.certificate is not None and verify(self.certificate, prime)


def make_job(job_id: str, size: str = MIXED, fault: Fault = "") -> Job:
    """The job of that id: the same id and size give the same prime. ``mixed`` chooses a size by the id.

    Raises:
        BadInput: the id is not a subject token, or size or fault is unknown.
    """
    check_token(job_id, "job id")
    chance = random.Random(job_id)  # noqa: S311 - it chooses work and protects nothing
    chosen: Size = chance.choice(SIZES)
    if size != MIXED:
        chosen = next((each for each in SIZES if each == size), chosen)
        if chosen != size:
            raise BadInput(f"{size!r} is not a size", hint=f"use {', '.join((*SIZES, MIXED))}")
    if fault not in FAULTS:
        raise BadInput(f"{fault!r} is not a fault", hint="use hang or die")
    bits = FACTOR_BITS[chosen]
    product = 2 * _prime_of(chance, bits) * _prime_of(chance, bits)
    multiple = 1
    while not is_prime(multiple * product + 1):
        multiple += 1
    return Job(job_id, multiple * product + 1, chosen, fault)


def _prime_of(chance: random.Random, bits: int) -> int:
    while True:
        number = chance.getrandbits(bits) | 1 | 1 << (bits - 1)
        if is_prime(number):
            return number


def prove(job: Job) -> Certificate:
    """Do the work, and verify it: a worker on broken hardware stores nothing.

    Raises:
        AnchorWatchError: there is no proof, or the proof is invalid.
    """
    certificate = certify(job.prime)
    if not verify(certificate, job.prime):
        raise BadInput(f"the proof of job {job.job_id} is invalid")
    return certificate


def encode_job(job: Job) -> bytes:
    """As JSON."""
    fault = {"fault": job.fault} if job.fault else {}
    return json.dumps({"job_id": job.job_id, "prime": str(job.prime), "size": job.size, **fault}).encode()


def decode_job(payload: bytes) -> Job:
    """Read a job.

    Raises:
        BadInput: it is invalid.
    """
    value = _object(payload, "job")
    try:
        size = next(each for each in SIZES if each == value["size"])
        fault = next(each for each in FAULTS if each == value.get("fault", ""))
        return Job(check_token(str(value["job_id"]), "job id"), int(value["prime"]), size, fault)
    except (KeyError, StopIteration, TypeError, ValueError) as error:
        raise BadInput(f"this is not a job: {error!r}"[:200]) from None


def encode_result(result: Result) -> bytes:
    """As JSON."""
    return json.dumps(
        {
            "job_id": result.job_id,
            "certificate": None if result.certificate is None else to_json(result.certificate),
            "instance": result.instance,
            "seconds": round(result.seconds, 3),
            "error": result.error,
        }
    ).encode()


def decode_result(payload: bytes) -> Result:
    """Read a result. Its proof is not checked: `Result.proves` does that.

    Raises:
        BadInput: it is invalid.
    """
    value = _object(payload, "result")
    try:
        certificate = None if value["certificate"] is None else from_json(value["certificate"])
        return Result(
            str(value["job_id"]),
            certificate,
            str(value["instance"]),
            float(value["seconds"]),
            str(value.get("error", "")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"this is not a result: {error!r}"[:200]) from None


def _object(payload: bytes, what: str) -> dict[str, Any]:
    try:
        value = json.loads(payload)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise BadInput(f"this is not a {what}: not a JSON object")
    return value
