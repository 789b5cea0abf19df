//! Keeps the library mapped once it was loaded.
//!
//! OpenSSL is one for the whole process and never unloaded. It keeps the address of functions that the `openssl` crate
//! registers for every TLS object of the process, the server's own included, and calls them whenever one is freed: also after
//! the server has unloaded this library.

include!("../../packaging/version.rs");

fn main() {
    tell_version();
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
