#!/usr/bin/env python3
"""driver_client.py SOCKET : speaks the Driver API to a driver as a client that shares no code with it would.

Walks one machine from "never made" to "deleted and refused", and ends with code 0 only if every answer is what
driver.proto promises. Prints a line per step. The stubs are generated from the proto and found by PYTHONPATH.
"""
import sys
import uuid

import grpc
from google.protobuf import json_format
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from machine.driver.v1 import driver_pb2 as api
from machine.driver.v1 import driver_pb2_grpc

PATIENCE = 30  # seconds for a call; a test machine may be busy


def machine_class():
    result = api.MachineClass(name="small", namespace="default", provider="virtual")
    result.provider_spec.update({"instanceType": "small", "region": "local", "zone": "local-a"})
    return result


def key():
    return api.MachineKey(cluster_id="local", namespace="default", name="by-python", uid=str(uuid.uuid4()))


def create_request(of):
    return api.CreateMachineRequest(
        key=of,
        machine_class=machine_class(),
        secret_data={"token": b"a secret"},
        user_data=b"#cloud-config",
        tags={"millwright/cluster": of.cluster_id, "millwright/uid": of.uid},
        spec_digest="0" * 64,
    )


def details(error):
    """The ErrorInfo and the BadRequest of a failed call, as far as it has them."""
    status = rpc_status.from_call(error)
    assert status is not None, f"no google.rpc.Status travels with {error}"
    info, bad_request = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    for detail in status.details:
        detail.Unpack(info) or detail.Unpack(bad_request)
    return info, bad_request


def refused(call, request, code, reason):
    """Makes a call that has to fail with this code and reason; gives its details."""
    try:
        answer = call(request, timeout=PATIENCE)
    except grpc.RpcError as error:
        info, bad_request = details(error)
        found = (error.code(), info.reason, info.domain)
        assert found == (code, reason, "machine.driver.v1"), f"{found}: {error.details()}"
        return bad_request
    raise AssertionError(f"accepted: {answer}")


def walk(driver):
    info = driver.GetDriverInfo(api.GetDriverInfoRequest(manager_name="driver_client.py"), timeout=PATIENCE)
    assert info.name == "virtual", info
    yield f"GetDriverInfo: {info.name} {info.vendor_version}"

    mine = key()
    status_request = api.GetMachineStatusRequest(key=mine, machine_class=machine_class())
    refused(driver.GetMachineStatus, status_request, grpc.StatusCode.NOT_FOUND, "MACHINE_NOT_FOUND")
    yield "GetMachineStatus of a machine never made: NOT_FOUND, MACHINE_NOT_FOUND"

    first = driver.CreateMachine(create_request(mine), timeout=PATIENCE).machine
    second = driver.CreateMachine(create_request(mine), timeout=PATIENCE).machine
    assert first.provider_id and first.provider_id == second.provider_id, (first, second)
    assert first.key == mine, first
    listed = driver.ListMachines(api.ListMachinesRequest(cluster_id="local", machine_class=machine_class()), timeout=PATIENCE)
    assert [vm.provider_id for vm in listed.machines] == [first.provider_id], listed
    yield f"CreateMachine twice: one VM, {first.provider_id}"

    without_uid = api.MachineKey()
    without_uid.CopyFrom(mine)
    without_uid.uid = ""
    bad = refused(driver.CreateMachine, create_request(without_uid), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
    fields = [violation.field for violation in bad.field_violations]
    assert fields == ["key.uid"], json_format.MessageToJson(bad)
    yield f"CreateMachine without a uid: INVALID_ARGUMENT naming {fields[0]}"

    delete = api.DeleteMachineRequest(key=mine, machine_class=machine_class())
    state = driver.DeleteMachine(delete, timeout=PATIENCE).state
    assert state == api.Machine.STATE_DELETED, api.Machine.State.Name(state)
    yield "DeleteMachine by key alone: STATE_DELETED"

    refused(driver.CreateMachine, create_request(mine), grpc.StatusCode.FAILED_PRECONDITION, "MACHINE_DELETED")
    yield "CreateMachine after it: FAILED_PRECONDITION, MACHINE_DELETED"


def main():
    # Without this option grpcio sends the percent-encoded path of the socket as authority, which HTTP/2 servers refuse.
    options = [("grpc.default_authority", "localhost")]
    with grpc.insecure_channel(f"unix:{sys.argv[1]}", options=options) as channel:
        for line in walk(driver_pb2_grpc.DriverServiceStub(channel)):
            print(line, flush=True)
    print("every answer was as promised")


if __name__ == "__main__":
    main()
