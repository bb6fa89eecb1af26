# One image for every service: `anchorwatch serve <name>`. Plain instructions only, so that any builder accepts it.
ARG PYTHON_IMAGE=python:3.13-slim

FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
ENV PATH=/opt/anchorwatch/bin:$PATH
COPY requirements.lock tools/runtime_lock.py ./
RUN python3 -m venv /opt/anchorwatch \
 && python3 runtime_lock.py hatchling >runtime.lock \
 && pip install --no-cache-dir --progress-bar off --require-hashes -r runtime.lock
COPY LICENSE README.md pyproject.toml ./
COPY shared shared
COPY services services
COPY packs packs
# Nothing is fetched here: the build backend is one of the pinned packages above, and is removed afterwards.
RUN pip install --no-deps --no-build-isolation --no-index . ./packs/fleet \
 && pip uninstall --yes hatchling pathspec pluggy tomlkit trove-classifiers setuptools \
 && pip uninstall --yes pip

FROM ${PYTHON_IMAGE}
ENV PATH=/opt/anchorwatch/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp \
    ANCHORWATCH_DATA_DIR=/var/lib/anchorwatch
# Volumes take their owner from the directory that they are first mounted on.
RUN mkdir -p /run/anchorwatch /var/lib/anchorwatch \
 && chown 10001:10001 /run/anchorwatch /var/lib/anchorwatch
COPY --from=build /opt/anchorwatch /opt/anchorwatch
COPY packs/fleet/anchorwatch_fleet/agent.toml /etc/anchorwatch/fleet-keeper.toml
WORKDIR /var/lib/anchorwatch
USER 10001:10001
ENTRYPOINT ["anchorwatch"]
CMD ["version"]
