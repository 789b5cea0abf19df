//! As the provider's.

include!("../../packaging/version.rs");

fn main() {
    tell_version();
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg-examples=-Wl,-z,nodelete");
}
