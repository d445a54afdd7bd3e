"""How far a session's jobs are."""

from __future__ import annotations

from pyspark.sql import SparkSession

from gossiplog.spark.failures import worker_errors


def tasks(spark: SparkSession) -> tuple[int, int]:
    """Return the tasks that are done, and all of them, in the stages that are known of the jobs that run now.

    Raises:
        SparkError: the session has ended.
    """
    with worker_errors():
        tracker = spark.sparkContext.statusTracker()
        jobs = [job for number in tracker.getActiveJobsIds() if (job := tracker.getJobInfo(number)) is not None]
        numbers = {number for job in jobs for number in job.stageIds}
        stages = [stage for number in numbers if (stage := tracker.getStageInfo(number)) is not None]
    return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
