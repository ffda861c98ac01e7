#!/bin/sh
# A step of the platform: what the study may use of the card is said here, and nowhere in the study.
exec tenure submit --name digits --project studies --priority batch --shares 1 --gpu-memory 2Gi -- \
  python -m tenure_studies.digits "$@"
