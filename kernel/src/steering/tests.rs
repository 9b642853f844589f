// SPDX-License-Identifier: GPL-2.0-only
//! A machine of files in a temporary folder.

use super::*;

/// CPUs 0 to 3; interrupts by number, device and mask.
fn machine(interrupts: &[(u32, &str, &str)]) -> (tempfile::TempDir, Files, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_path_buf();
    for (file, text) in
        [(DEFAULT, "f\n"), (WORK, "f\n"), ("sys/devices/system/cpu/online", "0-3\n")]
    {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    for (number, device, mask) in interrupts {
        fs::create_dir_all(root.join(format!("proc/irq/{number}/{device}"))).unwrap();
        fs::write(root.join(affinity(*number)), format!("{mask}\n")).unwrap();
    }
    let noted = root.join("run/interrupts");
    (folder, Files { root }, noted)
}

fn online(files: &Files, list: &str) {
    fs::write(files.at("sys/devices/system/cpu/online"), list).unwrap();
}

fn all(files: &Files) -> Masks {
    files.all().unwrap().into_iter().map(|f| (f.clone(), files.read(&f).unwrap())).collect()
}

#[test]
fn masks_read_and_print_as_the_kernel_writes_them() {
    for (mask, words) in [(1, "1"), (1 << 31, "80000000"), (1 << 32, "1,00000000")] {
        assert_eq!(text(mask), words);
        assert_eq!(bits(words), Some(mask));
    }
    assert_eq!(bits("ffffffff,ffffffff,00000000,0000000f\n"), Some(0xf));
    assert_eq!(bits("x"), None);
    assert_eq!(bits(""), None);
}

#[test]
fn everything_goes_to_the_cpu_and_back_and_the_note_goes_too() {
    let (_folder, files, noted) = machine(&[(1, "keyboard", "f"), (24, "disk", "3")]);
    let before = all(&files);
    let (mut steering, words) = Steering::at(files.clone(), &noted, 2).unwrap();
    assert!(all(&files).values().all(|mask| mask == "4"), "{:?}", all(&files));
    assert!(words.contains("2 device interrupts and the kernel's unbound work"), "{words}");
    assert!(noted.exists());
    steering.end().unwrap();
    assert_eq!(all(&files), before);
    assert!(!noted.exists());
}

#[test]
fn one_that_refuses_is_named_and_left_alone() {
    let (_folder, files, noted) = machine(&[(1, "keyboard", "f"), (25, "queue", "8")]);
    // Readable, and nobody may write it, not even root.
    let path = files.at(&affinity(25));
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/proc/sys/kernel/ngroups_max", &path).unwrap();
    let (_steering, words) = Steering::at(files.clone(), &noted, 2).unwrap();
    assert_eq!(files.read(&affinity(1)).unwrap(), "4");
    assert!(
        words.contains("1 device interrupts") && words.contains("1 cannot: 25 queue"),
        "{words}"
    );
}

#[test]
fn what_others_have_moved_meanwhile_stays_and_what_is_new_goes_where_new_ones_went() {
    let (_folder, files, noted) =
        machine(&[(1, "keyboard", "f"), (2, "disk", "f"), (3, "apart", "4")]);
    let (mut steering, _) = Steering::at(files.clone(), &noted, 2).unwrap();
    fs::write(files.at(&affinity(1)), "1").unwrap();
    fs::create_dir_all(files.at("proc/irq/30/network")).unwrap();
    fs::write(files.at(&affinity(30)), "4").unwrap();
    steering.steer(false).unwrap();
    assert_eq!(files.read(&affinity(1)).unwrap(), "4", "it is steered again");
    fs::write(files.at(&affinity(2)), "1").unwrap();
    steering.end().unwrap();
    let masks = [(1, "f"), (2, "1"), (3, "4"), (30, "f")];
    assert!(
        masks.iter().all(|(n, mask)| files.read(&affinity(*n)).unwrap() == *mask),
        "{:?}",
        all(&files)
    );
}

#[test]
fn while_its_cpu_is_off_line_interrupts_have_their_old_cpus() {
    let (_folder, files, noted) = machine(&[(1, "keyboard", "f")]);
    let before = all(&files);
    let (mut steering, _) = Steering::at(files.clone(), &noted, 2).unwrap();
    assert_eq!(steering.review(), None);
    online(&files, "0-1,3");
    // The kernel does so by itself.
    fs::write(files.at(&affinity(1)), "b").unwrap();
    let words = steering.review().unwrap();
    assert!(words.contains("off line: interrupts go to CPUs 0-1,3"), "{words}");
    assert_eq!((all(&files), steering.cpu_in_force()), (before.clone(), None));
    assert!(!noted.exists());
    assert_eq!(steering.review(), None);
    online(&files, "0-3");
    assert!(steering.review().unwrap().contains("is back"));
    assert!(all(&files).values().all(|mask| mask == "4"));
    drop(steering);
    assert_eq!(all(&files), before);
}

#[test]
fn what_a_killed_service_has_left_is_put_right_by_the_next() {
    let (_folder, files, noted) = machine(&[(1, "keyboard", "3"), (7, "gone", "f")]);
    let before = all(&files);
    let (killed, _) = Steering::at(files.clone(), &noted, 2).unwrap();
    std::mem::forget(killed);
    fs::remove_dir_all(files.at("proc/irq/7")).unwrap();
    let words = put_right_at(&files, &noted).unwrap().unwrap();
    assert!(words.contains("was killed"), "{words}");
    assert!(all(&files).iter().all(|(file, mask)| before[file] == *mask), "{:?}", all(&files));
    assert_eq!(put_right_at(&files, &noted).unwrap(), None);
}

/// Has a file refuse: readable, and nobody may write it, not even root. Returns what then stands there.
fn refuse(files: &Files, number: u32) -> String {
    let path = files.at(&affinity(number));
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/proc/sys/kernel/ngroups_max", &path).unwrap();
    files.read(&affinity(number)).unwrap()
}

fn accept(files: &Files, number: u32, mask: &str) {
    let path = files.at(&affinity(number));
    fs::remove_file(&path).unwrap();
    fs::write(path, mask).unwrap();
}

#[test]
fn what_cannot_be_put_back_yet_stays_noted_with_what_stood_there_first() {
    let (_folder, files, noted) = machine(&[(1, "keyboard", "3"), (2, "disk", "8")]);
    let before = all(&files);
    std::mem::forget(Steering::at(files.clone(), &noted, 2).unwrap());
    // The disk's only CPU is off line when the next one starts.
    online(&files, "0-2");
    let words = format!("{:#}", put_right_at(&files, &noted).unwrap_err());
    assert!(words.contains("irq/2/smp_affinity (none of its CPUs is on line)"), "{words}");
    assert_eq!(files.read(&affinity(1)).unwrap(), "3", "the rest is put back");
    // That one has another interrupt CPU, and is killed, too.
    std::mem::forget(Steering::at(files.clone(), &noted, 1).unwrap());
    assert_eq!(files.read(&affinity(2)).unwrap(), "2");
    online(&files, "0-3");
    put_right_at(&files, &noted).unwrap().unwrap();
    assert_eq!(all(&files), before);
    assert!(!noted.exists());
}

#[test]
fn the_end_keeps_the_note_of_what_it_could_not_put_back() {
    let (_folder, files, noted) = machine(&[(1, "keyboard", "3"), (2, "disk", "8")]);
    let before = all(&files);
    let (mut steering, _) = Steering::at(files.clone(), &noted, 2).unwrap();
    online(&files, "0-2");
    let words = format!("{:#}", steering.end().unwrap_err());
    assert!(words.contains("irq/2/smp_affinity") && !words.contains("irq/1/"), "{words}");
    drop(steering);
    online(&files, "0-3");
    put_right_at(&files, &noted).unwrap().unwrap();
    assert_eq!(all(&files), before);
}

#[test]
fn the_note_has_nothing_that_was_refused_or_could_not_be_put_back() {
    let high = "1,00000000,00000000";
    let (_folder, files, noted) =
        machine(&[(1, "keyboard", "f"), (2, "disk", "8"), (3, "far", high)]);
    refuse(&files, 2);
    std::mem::forget(Steering::at(files.clone(), &noted, 2).unwrap());
    let note = fs::read_to_string(&noted).unwrap();
    assert!(
        note.contains("irq/1/") && !note.contains("irq/2/") && !note.contains("irq/3/"),
        "{note}"
    );
    assert_eq!(files.read(&affinity(3)).unwrap(), high);
}

#[test]
fn a_line_of_the_note_that_cannot_be_carried_out_does_not_spoil_the_others() {
    let (_folder, files, noted) = machine(&[(1, "keyboard", "4"), (2, "disk", "4")]);
    fs::create_dir_all(noted.parent().unwrap()).unwrap();
    let note = "cpu 2\nproc/irq/1/smp_affinity 3\nproc/irq/2/smp_affinity 1,00000000,00000000\n";
    fs::write(&noted, note).unwrap();
    put_right_at(&files, &noted).unwrap().unwrap();
    assert_eq!(files.read(&affinity(1)).unwrap(), "3");
    assert_eq!(files.read(&affinity(2)).unwrap(), "4");
}

#[test]
fn one_that_was_refused_is_tried_again_at_the_next_look() {
    let (_folder, files, noted) = machine(&[(1, "keyboard", "f"), (2, "disk", "8")]);
    refuse(&files, 2);
    let (mut steering, words) = Steering::at(files.clone(), &noted, 2).unwrap();
    assert!(words.contains("1 cannot: 2 disk"), "{words}");
    accept(&files, 2, "8");
    let words = steering.steer(false).unwrap();
    assert!(words.contains("2 device interrupts") && !words.contains("cannot"), "{words}");
    assert_eq!(files.read(&affinity(2)).unwrap(), "4");
    steering.end().unwrap();
    assert_eq!(files.read(&affinity(2)).unwrap(), "8");
}

#[test]
fn where_the_note_is_damaged_interrupts_go_to_all_cpus_and_no_other_file_is_written() {
    let (_folder, files, noted) = machine(&[(1, "keyboard", "4")]);
    fs::create_dir_all(noted.parent().unwrap()).unwrap();
    let whole = "cpu 2\nproc/irq/1/smp_affinity f\n";
    assert!(parse(whole).is_some());
    let damaged = [
        "",
        "cpu\n",
        "cpu 2\n",
        "cpu 64\n",
        "cpu 2\nproc/irq/1/smp_affinity\n",
        "cpu 2\nproc/irq/1/smp_affinity 0\n",
        "cpu 2\nproc/irq/1/smp_affinity x\n",
        "cpu 2\nproc/irq/../../etc/smp_affinity f\n",
        "cpu 2\netc/passwd f\n",
        "cpu 2\n\u{0}",
    ];
    for note in damaged {
        fs::write(files.at(&affinity(1)), "4").unwrap();
        fs::write(&noted, note).unwrap();
        let words = put_right_at(&files, &noted).unwrap().unwrap();
        assert!(words.contains("damaged"), "{note:?}: {words}");
        assert_eq!(files.read(&affinity(1)).unwrap(), "f", "{note:?}");
        assert!(!noted.exists(), "{note:?}");
    }
}

#[test]
fn a_survey_tells_those_that_can_be_moved_from_those_that_cannot() {
    use std::os::unix::fs::PermissionsExt;
    let (_folder, files, _) = machine(&[(0, "timer", "f"), (1, "keyboard", "f"), (9, "acpi", "f")]);
    let fixed = fs::Permissions::from_mode(0o444);
    fs::set_permissions(files.at(&affinity(0)), fixed).unwrap();
    // Nobody has this one.
    fs::create_dir_all(files.at("proc/irq/5")).unwrap();
    let survey = Survey::of(&files).unwrap();
    assert_eq!(survey, Survey { movable: 2, fixed: vec!["0 timer".into()], work: true });
    assert_eq!(survey.say(), "2 device interrupts can be moved; 1 cannot: 0 timer");
}
