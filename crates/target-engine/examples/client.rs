//! Embedding the host in any program: reads and writes from any thread.
//!
//!     cargo run --release --example client -- 127.0.0.1:4420 nqn.2024-01.example:disk
//!
//! Writes over the first block of the first namespace, then copies it to the blocks after it.

use roadtrain_host_engine::{Class, HostClient, HostConfig, IoOp, IoRequest};
use roadtrain_system::buffer::Buffer;
use std::net::SocketAddr;
use std::sync::mpsc::channel;

const COPIES: u64 = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, nqn] = &arguments[..] else {
        return Err("usage: client ADDRESS:PORT NQN".into());
    };
    let host_nqn = "nqn.2014-08.org.nvmexpress:uuid:6c1b4f5e-8f3c-4b6a-9d8e-2f0a7c5d3e21";
    let mut config = HostConfig::new(address.parse::<SocketAddr>()?, nqn, host_nqn, [0x6c; 16]);
    config.lanes = 2;
    let client = HostClient::connect(config)?;
    let namespaces = client.view().info().namespaces;
    let namespace = namespaces.first().ok_or("the target has no namespace")?;
    let (nsid, block_bytes) = (namespace.nsid, namespace.block_bytes as usize);

    // One call at a time: the buffer is returned, and an error has its NVMe status.
    let mut buffer = Buffer::alloc(block_bytes);
    buffer.fill(0x42);
    client.write(nsid, 0, buffer, true)?;
    let block = client.read(nsid, 0, Buffer::alloc(block_bytes))?;
    println!("block 0 of namespace {nsid} begins with {:#x}", block[0]);

    // Many at once: completions arrive on a channel in any order. `submit` calls a function instead.
    let (done, completions) = channel();
    for slba in 1..=COPIES {
        let mut buffer = Buffer::alloc(block_bytes);
        buffer.copy_from_slice(&block);
        let (fua, urgent) = (false, false);
        let (op, blocks, buffer, token) = (IoOp::Write, 1, Some(buffer), slba);
        let request =
            IoRequest { op, nsid, slba, blocks, fua, urgent, class: Class::Normal, buffer, token };
        client.submit_to(request, &done);
    }
    drop(done);
    let failed = completions.iter().filter(|completion| !completion.status.is_success()).count();
    client.flush(nsid)?;
    println!("{COPIES} copies, {failed} failed");
    Ok(()) // dropping the last clone of `client` shuts the controller down
}
