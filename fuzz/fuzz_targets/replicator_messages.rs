#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| (trireme_fuzz_targets::target("replicator_messages").run)(data));
