include!("../../packaging/version.rs");

fn main() {
    tell_version();
}
