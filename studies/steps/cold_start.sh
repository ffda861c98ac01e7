#!/bin/sh
# A step of the platform: the study is a caller, so it needs no card, and it may give way to anybody and go on later.
# OPENAI_BASE_URL says where the models are asked; its arguments go to the study.
exec tenure submit --name cold-start --project studies --priority batch -- \
  python -m tenure_studies.cold_start "$@"
