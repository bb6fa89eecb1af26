"""Every subject and stream of the fleet, defined once."""

from __future__ import annotations

from anchorwatch.packs import KIB, ConsumerSpec, StreamSpec, Subject

YARD = Subject("aw.yard.{verb}")
REPORT = Subject("aw.yard.report.{instance}")
JOB = Subject("fleet.job.{job_id}")
RESULT = Subject("fleet.result.{job_id}")

JOBS = "FLEET_JOBS"
RESULTS = "FLEET_RESULTS"
RESULTS_AGE_MAX_S = 30 * 24 * 3600.0

JOBS_SPEC = StreamSpec(name=JOBS, subjects=(JOB.filter(),), message_bytes_max=16 * KIB, work_queue=True)
RESULTS_SPEC = StreamSpec(
    name=RESULTS, subjects=(RESULT.filter(),), message_bytes_max=64 * KIB, age_max_s=RESULTS_AGE_MAX_S
)

WORK = ConsumerSpec(stream=JOBS, filters=(JOB.filter(),), durable="fleet-workers", ack_wait_s=5.0)
"""The one consumer that all workers share: a job goes to one of them, and to another if that one dies."""
PROVIDER_ERROR = "provider_error"
"""The yard's code for a fault of its provider, which occurs before the yard checks the effect key."""
