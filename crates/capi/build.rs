//! Names the library as those who are linked with it look for it: its number changes when they would not work any more.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libroadtrain.so.0");
    // What is in it beside the header stays inside: crc-fast has an interface of its own for C.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    println!("cargo:rerun-if-changed=build.rs");
}
