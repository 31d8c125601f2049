//! Generates the messages and services of `proto/csi.proto`; needs no `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto/csi.proto");
    let files = protox::compile(["csi.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .build_client(false)
        .build_transport(false)
        .generate_default_stubs(true)
        .compile_fds(files)?;
    Ok(())
}
