//! Answers whose items are read so far only: an item takes two bytes on the wire and hundreds in memory, so a message within the limit of
//! bytes can hold millions of them.
//!
//! Decides nothing about an answer: how many items were left out is told, and `answer` judges. The generated client reads whole answers,
//! so these calls are made beside it.

use millwright_proto::v1;
use prost::Message;
use prost::bytes::{Buf, BufMut};
use prost::encoding::{DecodeContext, WireType, skip_field};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use super::bounds::ITEMS;
use super::endpoint::Wire;

/// A message whose field `TAG`, a repeated one, is read so far only.
#[derive(Clone, Debug, Default)]
pub(super) struct Bounded<M, const TAG: u32> {
    /// What was read.
    pub(super) message: M,
    /// How many items there are.
    items: usize,
}

impl<M, const TAG: u32> Bounded<M, TAG> {
    /// How many items were left out.
    pub(super) fn left_out(&self) -> usize {
        self.items.saturating_sub(ITEMS)
    }
}

#[cfg(test)]
impl<M, const TAG: u32> From<M> for Bounded<M, TAG> {
    fn from(message: M) -> Self {
        Self { message, items: 0 }
    }
}

impl<M: Message, const TAG: u32> Message for Bounded<M, TAG> {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        self.message.encode_raw(buf);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), prost::DecodeError> {
        self.items += usize::from(tag == TAG);
        match tag == TAG && self.items > ITEMS {
            true => skip_field(wire_type, tag, buf, context),
            false => self.message.merge_field(tag, wire_type, buf, context),
        }
    }

    fn encoded_len(&self) -> usize {
        self.message.encoded_len()
    }

    fn clear(&mut self) {
        self.message.clear();
        self.items = 0;
    }
}

pub(super) type Machines = Bounded<v1::ListMachinesResponse, 1>;
pub(super) type Violations = Bounded<v1::ValidateMachineClassResponse, 1>;

pub(super) async fn list_machines(
    wire: Wire,
    request: Request<v1::ListMachinesRequest>,
) -> Result<Response<Machines>, Status> {
    ask(wire, "/machine.driver.v1.DriverService/ListMachines", request).await
}

pub(super) async fn validate_machine_class(
    wire: Wire,
    request: Request<v1::ValidateMachineClassRequest>,
) -> Result<Response<Violations>, Status> {
    ask(wire, "/machine.driver.v1.DriverService/ValidateMachineClass", request).await
}

/// One call by its path, as the generated client makes it.
async fn ask<Req, M, const TAG: u32>(
    wire: Wire,
    path: &'static str,
    request: Request<Req>,
) -> Result<Response<Bounded<M, TAG>>, Status>
where
    Req: Message + 'static,
    M: Message + Default + 'static,
{
    let mut client = Grpc::new(wire);
    client.ready().await?;
    let codec = ProstCodec::<Req, Bounded<M, TAG>>::default();
    client.unary(request, PathAndQuery::from_static(path), codec).await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: D1, D4.
    #[test]
    fn of_millions_of_items_the_first_are_read_and_the_others_counted() {
        let wire = v1::ListMachinesResponse {
            machines: vec![v1::Machine::default(); 1_000_000],
            next_page_token: "next".to_owned(),
            ..Default::default()
        };
        let read = Machines::decode(wire.encode_to_vec().as_slice()).expect("a message");
        assert_eq!(read.message.machines.len(), ITEMS);
        assert_eq!(read.left_out(), 1_000_000 - ITEMS);
        assert_eq!(read.message.next_page_token, "next");
    }
}
