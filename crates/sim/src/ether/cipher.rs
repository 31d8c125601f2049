//! A toy cipher for simulated time. It hides nothing, but detects the modifications that AES-GCM would. The sealing
//! around it is the product's own.

use roadtrain_ether_proto::frame_writer::MemoryFrame;
use roadtrain_proto::seal::{CipherFailed, Seal, SealCipher, SealDirection, TAG_BYTES};
use roadtrain_proto::security::{NONCE_BYTES, Suite};
use roadtrain_wire::ether::FrameType;

/// End of a lane with sealed frames.
pub(super) type SimSeal = Seal<ToyCipher>;

/// Toy cipher.
pub(super) struct ToyCipher {
    key: u64,
    opens: bool,
    stream: u64,
    sum: u64,
}

fn mix(number: u64) -> u64 {
    let z = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl ToyCipher {
    fn absorb(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.sum = (self.sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3).rotate_left(29);
        }
    }

    fn next(&mut self) -> u8 {
        self.stream = self.stream.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (self.stream >> 56) as u8
    }

    fn sum(&self) -> [u8; TAG_BYTES] {
        let halves = [mix(self.sum ^ self.key), mix(self.sum.wrapping_add(self.key))];
        let mut tag = [0; TAG_BYTES];
        for (place, half) in tag.as_chunks_mut::<8>().0.iter_mut().zip(halves) {
            *place = half.to_le_bytes();
        }
        tag
    }
}

impl SealCipher for ToyCipher {
    fn new(_: Suite, key: &[u8], direction: SealDirection) -> Result<Self, CipherFailed> {
        let mut cipher =
            ToyCipher { key: 1, opens: direction == SealDirection::Open, stream: 0, sum: 0 };
        cipher.absorb(key);
        cipher.key = cipher.sum;
        Ok(cipher)
    }

    fn begin(&mut self, nonce: &[u8; NONCE_BYTES], header: &[u8]) -> Result<(), CipherFailed> {
        self.sum = self.key;
        self.absorb(nonce);
        self.stream = mix(self.sum);
        self.absorb(header);
        Ok(())
    }

    fn update(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), CipherFailed> {
        output.copy_from_slice(input);
        self.update_in_place(output)
    }

    fn update_in_place(&mut self, bytes: &mut [u8]) -> Result<(), CipherFailed> {
        if self.opens {
            self.absorb(bytes);
        }
        for byte in &mut *bytes {
            *byte ^= self.next();
        }
        if !self.opens {
            self.absorb(bytes);
        }
        Ok(())
    }

    fn tag(&mut self) -> Result<[u8; TAG_BYTES], CipherFailed> {
        Ok(self.sum())
    }

    fn verify(&mut self, tag: &[u8; TAG_BYTES]) -> bool {
        self.sum() == *tag
    }
}

/// Seals frames before they are sent.
pub(super) fn sealed(seal: Option<&mut SimSeal>, mut frames: Vec<MemoryFrame>) -> Vec<MemoryFrame> {
    if let Some(seal) = seal.filter(|seal| seal.is_on()) {
        let is_sealed = |frame: &&mut MemoryFrame| frame.header.kind != FrameType::Leave as u8;
        for frame in frames.iter_mut().filter(is_sealed) {
            assert!(seal.seal(&mut frame.header, &mut frame.body), "a run uses no key up");
        }
    }
    frames
}
