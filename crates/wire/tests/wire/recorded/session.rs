//! Every PDU of every recording, with its layout and the parameters of its connection.

use super::capture::{self, Recorded};
use roadtrain_wire::pdu::{
    CommonHeader, Digests, IcReq, IcResp, PduLayout, PduType, alignment_bytes,
};
use roadtrain_wire::zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};
use std::collections::HashMap;

/// Parameters that ICReq and ICResp of a connection have negotiated.
#[derive(Clone, Copy)]
pub(crate) struct Agreed {
    pub(crate) digests: Digests,
    /// Alignment of data from the controller (HPDA) and from the host (CPDA), in bytes.
    pub(crate) alignment: [u32; 2],
}

impl Default for Agreed {
    fn default() -> Self {
        Agreed { digests: Digests::default(), alignment: [4, 4] }
    }
}

/// Returns the structure at the front of `bytes`.
pub(crate) fn view<T: FromBytes + KnownLayout + Immutable + Unaligned>(bytes: &[u8]) -> &T {
    T::ref_from_prefix(bytes).expect("long enough").0
}

/// Returns the data of a PDU.
pub(crate) fn data<'a>(pdu: &'a Recorded, layout: &PduLayout) -> &'a [u8] {
    let start = layout.data_offset as usize;
    &pdu.bytes[start..start + layout.data_bytes as usize]
}

/// Calls `check` with every PDU of every recording, its layout and the parameters of its connection.
pub(crate) fn for_every_pdu(mut check: impl FnMut(&str, &Recorded, &PduLayout, Agreed)) {
    for name in capture::names() {
        let mut agreed: HashMap<usize, Agreed> = HashMap::new();
        for pdu in capture::pdus(&name) {
            let now = agreed.entry(pdu.connection).or_default();
            let ch: &CommonHeader = view(&pdu.bytes);
            let layout = ch
                .layout(now.digests, now.alignment[usize::from(pdu.from_host)])
                .unwrap_or_else(|e| panic!("{name}: {e:?} in {ch:?}"));
            now.learn(&pdu, layout.kind);
            assert_eq!(layout.kind.is_from_host(), pdu.from_host, "{name}: {ch:?}");
            check(&name, &pdu, &layout, *now);
        }
    }
}

impl Agreed {
    fn learn(&mut self, pdu: &Recorded, kind: PduType) {
        match kind {
            PduType::IcReq => {
                let hpda = view::<IcReq>(&pdu.bytes).hpda;
                self.alignment[0] = alignment_bytes(hpda).expect("HPDA in range");
            }
            PduType::IcResp => {
                let icresp: &IcResp = view(&pdu.bytes);
                self.alignment[1] = alignment_bytes(icresp.cpda).expect("CPDA in range");
                self.digests = Digests::from_byte(icresp.dgst).expect("no reserved bits");
            }
            _ => {}
        }
    }
}
