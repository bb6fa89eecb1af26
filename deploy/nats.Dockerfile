# The NATS server for a user who is not root: the store's volume takes its owner from /data, and the user may read the
# configuration that `anchorwatch init` wrote.
ARG NATS_IMAGE=nats:2.15-alpine

FROM ${NATS_IMAGE}
RUN mkdir -p /data /run/anchorwatch \
 && chown 10001:10001 /data /run/anchorwatch
USER 10001:10001
