from __future__ import annotations

import json
from dataclasses import replace

import pytest
from anchorwatch.core.errors import BadInput
from anchorwatch_fleet.factor import factor, is_prime
from anchorwatch_fleet.jobs import (
    FACTOR_BITS,
    SIZES,
    Job,
    Result,
    Size,
    decode_job,
    decode_result,
    encode_job,
    encode_result,
    make_job,
    prove,
)


@pytest.mark.parametrize("size", SIZES)
def test_job_is_a_prime_whose_proof_cost_matches_its_size(size: Size) -> None:
    job = make_job("j-1", size)

    assert is_prime(job.prime)
    hard = [prime for prime in factor(job.prime - 1) if prime.bit_length() == FACTOR_BITS[size]]
    assert len(hard) == 2


def test_same_id_gives_the_same_job_and_another_id_another() -> None:
    assert make_job("j-1") == make_job("j-1")
    assert make_job("j-1", "small").prime != make_job("j-2", "small").prime


def test_mixed_jobs_are_of_every_size() -> None:
    assert {make_job(f"j-{number}").size for number in range(30)} == set(SIZES)


def test_job_is_proved_and_its_result_holds_for_its_prime_alone() -> None:
    job = make_job("j-1", "small")
    result = decode_result(encode_result(Result("j-1", prove(job), "w-1", 0.1)))

    assert result.proves(job.prime)
    assert not result.proves(make_job("j-2", "small").prime)
    assert not replace(result, certificate=None).proves(job.prime)


@pytest.mark.parametrize("job", [make_job("j-1", "small"), make_job("j-2", "large", "hang")])
def test_job_travels_as_json(job: Job) -> None:
    assert decode_job(encode_job(job)) == job


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"{}",
        b'{"job_id": "a.b", "prime": "7", "size": "small"}',
        b'{"job_id": "a", "prime": "x", "size": "small"}',
        b'{"job_id": "a", "prime": "7", "size": "huge"}',
        b'{"job_id": "a", "prime": "7", "size": "small", "fault": "lie"}',
    ],
)
def test_invalid_job_is_refused(payload: bytes) -> None:
    with pytest.raises(BadInput):
        decode_job(payload)


@pytest.mark.parametrize("payload", [b"", b"{}", json.dumps({"job_id": "a", "certificate": {}}).encode()])
def test_invalid_result_is_refused(payload: bytes) -> None:
    with pytest.raises(BadInput):
        decode_result(payload)


def test_unknown_size_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BadInput, match="small, medium, large, mixed"):
        make_job("j-1", "huge")
