#!/usr/bin/env bash
# A sweep on many nodes of Slurm: one task of the array trains a share of the trials, the last job
# makes one run of the shares.
#   tasks=$(sbatch --parsable --array=1-8 examples/slurm_sweep.sh sweep.yaml out)
#   sbatch --dependency=afterok:$tasks --wrap "spillway merge out"
# A task that Slurm starts again goes on from its newest checkpoints.
#SBATCH --requeue
#SBATCH --cpus-per-task=2
set -euo pipefail
config="$1" output_dir="$2"
exec spillway train "$config" resume=auto \
  "sweep.share=$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" \
  "output_dir=$output_dir/shares/$SLURM_ARRAY_TASK_ID"
