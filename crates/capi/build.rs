//! Sets the library's soname, whose number changes with every incompatible version.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libroadtrain.so.0");
    // Symbols that are not in the header stay hidden: crc-fast has an interface of its own for C.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    println!("cargo:rerun-if-changed=build.rs");
}
